"""What Penstock's machinery costs.

    python bench/overhead.py [--rounds N] [--seconds S] [--skip-placed] [--skip-fused]

Fused: parse XML, pi and table query as one pipeline against the same code called in a plain loop inside one
`mapInPandas`, fed by the same source with the same batches. Both queries live in one session and are offered more than
they can do in turns of a few batches; a round is a turn of each. Placed: a chain of three operators that do nothing, on
a cluster of two nodes started for it: how long a hop takes and how many micro-batches a second the application does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.clock import now, pause
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.segmentation.on_slots import segments_on_slots
from penstock.spark import load_source
from penstock.spark.bundles import make_bundles
from penstock.spark.cluster_session import start_cluster_session
from penstock.spark.fused import FusedRun, start_query
from penstock.spark.fused_function import FusedFunction
from penstock.spark.ledger import Ledger
from penstock.spark.placed_run import PlacedRun, PlacedSetup
from penstock.spark.session import embedded_session, end_session
from penstock.spark.standalone import running_cluster
from penstock.workloads.operators import reference_logic, services

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHAIN = ("parse_xml", "pi", "azure_table")
SLOTS = 1
MORE_THAN_ANY = 1e6
BATCH_ROWS = 2500
"""About a second of work."""
BATCHES_PER_TURN = 4


def by_hand(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """What one would write without Penstock: open once per task, loop over the rows, build a frame of the results."""
    import pandas as pd  # noqa: PLC0415 - in the worker

    codes = [reference_logic[name] for name in CHAIN]
    opened = [(code.function, () if code.open is None else (code.open(),)) for code in codes]
    for frame in frames:
        results = []
        for value in frame["value"].to_list():
            row: dict[str, Any] = {"value": value}
            for function, arguments in opened:
                row = function(row, *arguments)
            results.append(row["value"])
        yield pd.DataFrame({"id": frame["id"], "value": results})


class WithEnvironment:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def __call__(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import os  # noqa: PLC0415 - in the worker

        os.environ.update(self._environment)
        return by_hand(frames)


class Side:
    """One of the two queries. Both live all the time and are fed in turns, a few batches each: how fast the machine is
    changes by the minute, and so concerns both alike."""

    def __init__(self, folder: Path, query: StreamingQuery) -> None:
        self._folder = folder
        self._query = query
        self._fed = self._taken = 0
        self._last_batch = -1
        load_source.bound_tuples(folder, 0)
        while "Waiting" not in query.status["message"]:
            pause(0.05)
        load_source.begin(folder)

    def turn(self) -> float:
        """Tuples/s from the end of the first batch of this turn on."""
        self._fed += BATCHES_PER_TURN * BATCH_ROWS
        load_source.bound_tuples(self._folder, self._fed)
        finished: list[tuple[float, int]] = []
        while self._taken < self._fed:
            pause(0.01)
            if not self._query.isActive:
                sys.exit(f"the query ended: {self._query.exception()}")
            last = self._query.lastProgress
            if last is not None and last["numInputRows"] and last["batchId"] > self._last_batch:
                self._last_batch = last["batchId"]
                self._taken += last["numInputRows"]
                finished.append((now(), last["numInputRows"]))
        return sum(rows for _, rows in finished[1:]) / (finished[-1][0] - finished[0][0])


def start_by_hand(session: SparkSession, environment: Mapping[str, str], folder: Path) -> StreamingQuery:
    session.dataSource.register(load_source.LoadSource)
    options = load_source.options(Load.constant(MORE_THAN_ANY), SLOTS, folder)
    frame = session.readStream.format(load_source.NAME).options(**options).load()
    return (
        frame.mapInPandas(WithEnvironment(dict(environment)), "id bigint, value bigint")
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )


def start_fused(session: SparkSession, environment: Mapping[str, str], folder: Path, ledger: Ledger) -> StreamingQuery:
    built = penstock.pipeline("chain").source("source")
    for name in CHAIN:
        built = built.then(name, model=name)
    run = FusedRun(
        built.sink("sink").build(),
        {name: reference_logic[name] for name in CHAIN},
        dict.fromkeys(CHAIN, 1),
        Load.constant(MORE_THAN_ANY),
        SLOTS,
        BATCH_ROWS,
    )
    function = FusedFunction("fused", run.steps(), tuple(environment.items()))
    return start_query(session, run, folder, function, ledger)


def compare_fused(rounds: int) -> None:
    with (
        services(CHAIN) as environment,
        embedded_session(SLOTS) as session,
        tempfile.TemporaryDirectory() as name,
    ):
        folders = [Path(name) / "by-hand", Path(name) / "fused"]
        for folder in folders:
            folder.mkdir()
            load_source.bound_batches(folder, BATCH_ROWS)
        ledger = Ledger(folders[1] / "ledger")
        queries = [
            start_by_hand(session, environment, folders[0]),
            start_fused(session, environment, folders[1], ledger),
        ]
        hand, fused = (Side(folder, query) for folder, query in zip(folders, queries, strict=True))
        ratios = []
        for number in range(-1, rounds):
            order = (hand, fused) if number % 2 else (fused, hand)
            rates = {side: side.turn() for side in order}
            if number < 0:
                continue
            ratios.append(rates[fused] / rates[hand])
            print(
                f"round {number + 1}: by hand {rates[hand]:,.0f}, fused {rates[fused]:,.0f} tuples/s, "
                f"ratio {ratios[-1]:.3f}",
                flush=True,
            )
        for query in queries:
            query.stop()
        audit = ledger.audit()
    if audit.lost or audit.duplicated:
        sys.exit(f"lost {audit.lost}, duplicated {audit.duplicated}")
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"fused / by hand in one mapInPandas: median {middle:.3f}, quartiles {low:.3f} to {high:.3f}, "
        f"of {rounds} (wanted: 0.95)"
    )


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def look_at_hops(seconds: float, rate: float) -> None:
    chain = penstock.pipeline("hops").source("source").then("a").then("b").then("c").sink("sink").build()
    load = Load.constant(rate)
    threads = {
        Slot("n1", 0): {"source": 1, "a": 1},
        Slot("n2", 0): {"b": 1},
        Slot("n1", 1): {"c": 1, "sink": 1},
    }
    with tempfile.TemporaryDirectory() as name, running_cluster(2, 2, folder=Path(name) / "c", memory_mb=768) as there:
        folder = Path(name)
        session = start_cluster_session(there.master_url, folder / "java.log", "hops", there.session_settings())
        try:
            wanted = penstock.segments(chain, segmenter="ends").segments
            segments = segments_on_slots(chain, wanted, threads)
            logic = {name: Logic(same) for name in "abc"}
            bundles = make_bundles(chain, logic, threads, load, lambda _, n: float(n), segments=segments)
            setup = PlacedSetup(folder / "run", load, {}, lambda _: int(rate), interval_ms=200)
            run = PlacedRun(session, setup, bundles)
            run.start()
            run.begin()
            run.watch(seconds)
            held, backlog = now(), run.dispatcher.backlog
            drained = run.drain()
            report = run.report(held, seconds / 3, backlog)
            run.stop()
        finally:
            end_session(session)
    way = report.latency_ms["p50"]
    print(
        f"placed chain of {len(bundles)} bundles at {rate:,.0f} tuples/s: {way / (len(bundles) - 1):,.0f} ms per hop "
        f"(p50 of the whole way {way:,.0f} ms), {report.batches / report.seconds:.1f} micro-batches/s, "
        f"drained in {drained:.1f} s, lost {report.audit.lost}, duplicated {report.audit.duplicated}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each placed run")
    parser.add_argument("--skip-placed", action="store_true")
    parser.add_argument("--skip-fused", action="store_true")
    given = parser.parse_args()
    if not given.skip_fused:
        compare_fused(given.rounds)
    if not given.skip_placed:
        for rate in (1000.0, 10_000.0):
            look_at_hops(given.seconds, rate)


if __name__ == "__main__":
    main()
