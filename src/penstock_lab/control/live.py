"""The short form on real Spark: a pipeline follows a step, a sine or a spike of some minutes under the live controller,
and the same controller over simulated pipelines beside it.

Every tuple waits 9.5 ms (a slot does about 105 a second, whatever the machine), so that two cores carry four slots.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import penstock
from penstock import BadInputError, RunError, pipeline
from penstock.plugins import Stopwatch, is_whole, nearest, now, pause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from penstock import Pipeline

NAME = "followed"
OUT = "PENSTOCK_FOLLOWED_OUT"
NODES = 4
WAIT_SECONDS = 0.0095
BASE_RATE = 70.0
LATENCY_MS = 15_000.0
LOOK_SECONDS = 0.5
SPELL_SECONDS = 10.0
START_SECONDS = 180.0
RISEN = 1.5
"""Times the base: the load has risen."""


def wait(row: dict[str, Any]) -> dict[str, Any]:
    pause(WAIT_SECONDS)
    return {"value": row["value"]}


def waiting_pipeline() -> Pipeline:
    """The drivers import it by name; where its sink writes is said by the environment."""
    made = pipeline(NAME).source("numbers").then("wait", logic=wait, schema="value long", model="pi", threads=1)
    return made.sink("store", format="parquet", options={"path": os.environ.get(OUT, "out")}).build()


followed = waiting_pipeline()

LIVE_LOADS = ("step", "sine", "spike")


def live_rates(load: str, seconds: float) -> list[float]:
    """Tuples/s in spells of ten seconds: the load is low at first, so that models are learned."""
    if load not in LIVE_LOADS:
        raise BadInputError(f"unknown load '{load}'; {nearest(load, LIVE_LOADS)}")
    count = max(6, round(seconds / SPELL_SECONDS))
    parts = [index / count for index in range(count)]
    factors = {
        "step": [1.0 if part < 0.35 else 3.0 for part in parts],
        "spike": [3.0 if 0.35 <= part < 0.6 else 1.0 for part in parts],
        "sine": [2 - math.cos(2 * math.pi * part) for part in parts],
    }[load]
    return [BASE_RATE * factor for factor in factors]


@dataclass(frozen=True, slots=True)
class LiveReading:
    at: float
    offered: float
    rate: float
    backlog: float
    latency_ms: float
    held: int


def follow_live(load: str, folder: Path, *, seconds: float, simulated: bool) -> dict[str, float | None]:
    """One load from start to drained; on Spark every tuple is looked for in the sink's files afterwards."""
    rates = live_rates(load, seconds)
    os.environ[OUT] = str(folder / "out")
    try:
        penstock.up(nodes=NODES, slots=1, simulated=simulated, folder=folder)
        client = penstock.connect(folder=folder)
        client.submit(
            NAME,
            f"{__name__}:followed",
            rate=BASE_RATE,
            latency_ms=LATENCY_MS,
            maximum=NODES,
            load="steps:" + ",".join(f"{SPELL_SECONDS:g}x{rate:.4g}" for rate in rates),
        )
        readings = _watched(client, seconds)
        decisions = [row for row in client.decisions() if row["kind"] == "scale"]
        client.pause(NAME)
        _until(lambda: client.show(NAME)["state"] == "paused", "it is drained")
    finally:
        penstock.down(folder)
    figures = judged(readings, decisions)
    if not simulated:
        figures.update(counted(_written(folder / "out"), committed_tuples(folder)))
    return figures


def _until(true: Any, what: str) -> None:
    watch = Stopwatch()
    while not true():
        if watch.seconds() > START_SECONDS:
            raise RunError(f"{what}: not within {START_SECONDS:g} s")
        pause(LOOK_SECONDS)


def _watched(client: Any, seconds: float) -> list[LiveReading]:
    _until(lambda: (client.show(NAME)["offered_rate"] or 0) > 0, "tuples flow")
    watch, readings = Stopwatch(), []
    while watch.seconds() < seconds:
        shown = client.show(NAME)
        readings.append(
            LiveReading(
                now(),
                shown["offered_rate"] or 0.0,
                shown["rate"] or 0.0,
                shown["backlog"] or 0.0,
                shown["latency_ms"] or 0.0,
                shown["held"],
            )
        )
        pause(LOOK_SECONDS)
    return readings


def judged(readings: Sequence[LiveReading], decisions: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Seconds until the backlog falls for good after the rise, until it is gone after the first growth, and what that
    decision said; slot-hours, seconds outside the target, changes."""
    gaps = [after.at - before.at for before, after in pairwise(readings)]
    risen = next((reading.at for reading in readings if reading.offered > RISEN * BASE_RATE), None)
    grown = next((row for row in decisions if row["to"] > row["from"]), None)
    met = catch_up = predicted = None
    if risen is not None and grown is not None:
        after = [reading for reading in readings if reading.at >= risen]
        met = max(after, key=lambda reading: reading.backlog).at - risen
        gone = next(
            (reading.at for reading in after if reading.at > risen + met and reading.backlog <= reading.offered),
            None,
        )
        catch_up = None if gone is None else gone - grown["at"]
        predicted = grown["expected"].get("catch_up_s")
    return {
        "met_s": met,
        "catch_up_s": catch_up,
        "predicted_catch_up_s": predicted,
        "slot_hours": sum(gap * reading.held for gap, reading in zip(gaps, readings, strict=False)) / 3600,
        "outside_s": sum(gap for gap, reading in zip(gaps, readings, strict=False) if reading.latency_ms > LATENCY_MS),
        "changes": float(len(decisions)),
    }


def committed_tuples(folder: Path) -> int:
    """Tuples of the load that the only run below `folder` took in, as its checkpoint says: the last batch that Spark
    has committed, and where the source ends with it."""
    checkpoints = {path.parent for path in folder.rglob("checkpoint/commits")}
    if len(checkpoints) != 1:
        raise RunError(f"{folder}: expected the checkpoint of one run, found {len(checkpoints)}")
    (checkpoint,) = checkpoints
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if is_whole(file.name))
    # a line for Spark's version of the file, one for the batch, and one for each source
    return int(json.loads((checkpoint / "offsets" / str(last)).read_text("utf-8").splitlines()[-1])["tuples"])


def counted(values: Iterable[int], taken: int) -> dict[str, float | None]:
    """Tuples are numbered from 0, and the run took in so many: how many came, how many are missing (the last ones, too)
    and how many came more than once."""
    counts = Counter(values)
    return {
        "came": float(len(counts)),
        "lost": float(sum(number not in counts for number in range(taken))),
        "doubled": float(sum(count - 1 for count in counts.values())),
    }


def _written(folder: Path) -> list[int]:
    from pyarrow import dataset  # noqa: PLC0415 - only after a run on Spark

    table = dataset.dataset(str(folder), format="parquet", exclude_invalid_files=True).to_table(columns=["value"])
    values: list[int] = table.column("value").to_pylist()
    return values
