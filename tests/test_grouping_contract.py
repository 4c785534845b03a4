"""What a grouping means is the same to the prediction, to the simulation and to a placed run: who gets which share."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from adapters import model
from penstock.cluster.topology import Slot
from penstock.dataflow.pipeline import KEYED, Grouping, Stream
from penstock.engines.placed.flow import routing as flow
from penstock.planning.prediction.placement import stream_shares
from penstock.runtime.batch import Batch
from penstock.simulation.dealing import StreamDealer
from penstock.simulation.scenario import SimulatedRoute, Station

# 1 thread does 10/s, 2 do 18, 3 do 24: slot-aware shares are 24, 10 and 18 of 52; by threads 3, 1 and 2 of 6
MODEL = model("m", (1, 10, 0.1, 0.1), (2, 18, 0.2, 0.2), (3, 24, 0.3, 0.3))
THREADS = {Slot("n0", 0): 3, Slot("n0", 1): 1, Slot("n1", 0): 2}
SLOTS = list(THREADS)
SENDER = SLOTS[1]
"""The slot all senders are on: with local-or-shuffle it keeps everything."""
ROWS = 60_000

Shares = list[float]

EXPECTED: dict[Grouping, Shares] = {
    Grouping.SHUFFLE: [3 / 6, 1 / 6, 2 / 6],
    Grouping.SLOT_AWARE: [24 / 52, 10 / 52, 18 / 52],
    Grouping.FIELDS: [3 / 6, 1 / 6, 2 / 6],
    Grouping.PARTIAL_KEY: [3 / 6, 1 / 6, 2 / 6],
    Grouping.LOCAL_OR_SHUFFLE: [0, 1, 0],
    Grouping.ALL: [3, 1, 2],
    Grouping.GLOBAL: [1, 0, 0],
    Grouping.DIRECT: [3 / 6, 1 / 6, 2 / 6],
}


def predicted(grouping: Grouping) -> Shares:
    stream = Stream(sender="a", receiver="b", grouping=grouping, key="k" if grouping in KEYED else None)
    found = stream_shares(stream, THREADS, {SENDER: 1.0}, MODEL)
    return [found.get(slot, 0.0) for slot in SLOTS]


def simulated(grouping: Grouping) -> Shares:
    stations = [Station("b", slot, threads, threads / MODEL.rate(threads)) for slot, threads in THREADS.items()]
    dealer = StreamDealer(
        SimulatedRoute("a", "b", grouping),
        [Station("a", SENDER, 1, 0.0)],
        stations,
        by_thread=False,
        draws=np.random.default_rng(1),
    )
    targets = dealer.many(ROWS, np.zeros(ROWS, dtype=np.int64))
    counts = np.bincount(targets, minlength=len(SLOTS))
    return [float(count) / ROWS for count in counts]


def run(grouping: Grouping) -> Shares:
    targets = tuple(
        flow.ReceivingBundle(str(slot), threads, MODEL.rate(threads), local=slot == SENDER)
        for slot, threads in THREADS.items()
    )
    route = flow.Route(0, "a", 0, (0.0, 1.0), grouping, ("k",) if grouping in KEYED else (), targets)
    keys = np.arange(ROWS)
    rows = pa.RecordBatch.from_pydict({"k": keys, flow.THREAD_FIELD: keys % sum(THREADS.values())})
    counts: Counter[int] = Counter()
    for target, part in flow.Dealer(route).deal(Batch(rows)):
        counts[target] += len(part)
    return [counts[number] / ROWS for number in range(len(SLOTS))]


@pytest.mark.parametrize("grouping", Grouping)
@pytest.mark.parametrize("who", [predicted, simulated, run])
def test_every_slot_gets_its_share(who: object, grouping: Grouping) -> None:
    found = who(grouping)  # type: ignore[operator]
    # keys are hashed, and the key groups of a run are 128: nobody is off by more than a group or two
    assert found == pytest.approx(EXPECTED[grouping], abs=0.02)
