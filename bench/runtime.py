"""What a segment costs beside the code it runs, without Spark.

    python bench/runtime.py [--rounds N] [--json]

Ratios are rates, a segment's over the same code by hand, in turns, each at its least disturbed of all rounds:
`pandas_ratio` and `arrow_ratio` against a bare loop over the function, `frames_ratio` against code over an iterator of
frames, `audited_ratio` with ids and latency on top; `row_ratio` against a loop over dicts, `three_ratio` for three
computing operators of one thread. These compare seconds of CPU of the process, so that others on the machine matter
less. `overlap_ratio` compares seconds: two operators of 16 threads that wait 20 ms per row, against one after the
other. `row_rate` is rows/s of code per row that does nothing, `pandas_rate` of the vectorised code, both per second
of CPU; `batch_us` is what a batch of 10,000 rows costs besides vectorised code, in microseconds of CPU.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.clock import Stopwatch, cpu_seconds, now, pause
from penstock.dataflow.logic import Logic, Per
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Read, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

ROWS = 10_000
"""As many as Spark puts into a batch."""
BATCHES = 20
SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.float64())])
WAIT_SECONDS = 0.02
WAITING_THREADS = 16
WAITING_ROWS = 800


def batches(rows: int, count: int, *, tracked: bool = False) -> list[Batch]:
    made = []
    for number in range(count):
        ids = np.arange(number * rows, (number + 1) * rows)
        columns = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids / 7.0)], schema=SCHEMA)
        made.append(Batch(columns, Marks(ids, np.full(rows, now())) if tracked else Marks()))
    return made


def vectorised(frame: pd.DataFrame) -> pd.DataFrame:
    x = np.sqrt(frame["x"] + 1.0) * np.log1p(frame["x"]) + np.sin(frame["n"])
    return frame.assign(x=x)


def over_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    return map(vectorised, frames)


def arrow(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc  # noqa: PLC0415 - as users' code does

    x = pc.add(pc.multiply(pc.sqrt(table["x"]), pc.ln(pc.add(table["x"], 1.0))), pc.sin(table["x"]))
    return table.set_column(1, "x", x)


def same(table: pa.Table) -> pa.Table:
    return table


def nothing(row: dict[str, Any]) -> dict[str, Any]:
    return row


def compute(row: dict[str, Any]) -> dict[str, Any]:
    """About 20 microseconds."""
    total = 0
    for number in range(300):
        total += number * number % 7
    row["n"] = total
    return row


def wait(row: dict[str, Any]) -> dict[str, Any]:
    pause(WAIT_SECONDS)
    return row


def chain(*codes: Logic, threads: int = 1, audit: bool = False) -> Segment:
    steps = [Step(f"op{at}", code, threads, (Read(at - 1),), SCHEMA) for at, code in enumerate(codes)]
    sink = Step("sink", reads=(Read(len(codes) - 1),), leaves=True, delivers=True)
    return Segment([*steps, sink], SegmentOptions(audit=audit))


def through(segment: Segment, given: list[Batch]) -> int:
    rows = sum(len(batch) for _, batch in segment.process(given))
    segment.take_account().to_bytes()
    return rows


def pandas_by_hand(given: list[Batch]) -> int:
    rows = 0
    for batch in given:
        rows += pa.RecordBatch.from_pandas(vectorised(batch.rows.to_pandas()), SCHEMA, preserve_index=False).num_rows
    return rows


def arrow_by_hand(given: list[Batch]) -> int:
    rows = 0
    for batch in given:
        for made in arrow(pa.Table.from_batches([batch.rows])).to_batches():
            rows += made.num_rows
    return rows


def rows_by_hand(given: list[Batch], times: int) -> int:
    rows = 0
    for batch in given:
        dicts = batch.rows.to_pylist()
        for _ in range(times):
            dicts = [compute(row) for row in dicts]
        rows += pa.RecordBatch.from_pylist(dicts, SCHEMA).num_rows
    return rows


def cpu_of(work: Callable[[], int]) -> float:
    began = cpu_seconds()
    work()
    return cpu_seconds() - began


def seconds_of(work: Callable[[], int]) -> float:
    watch = Stopwatch()
    work()
    return watch.seconds()


def ratio(
    by_hand: Callable[[], int], ours: Callable[[], int], rounds: int, cost: Callable[[Callable[[], int]], float]
) -> float:
    """How many times as fast as by hand, each at its least disturbed; the first is to get warm."""
    assert by_hand() == ours()
    costs: dict[Callable[[], int], list[float]] = {by_hand: [], ours: []}
    for _ in range(rounds):
        for work, seen in costs.items():
            seen.append(cost(work))
    return min(costs[by_hand]) / min(costs[ours])


def waiting_one_after_the_other(first: Segment, second: Segment, given: list[Batch]) -> int:
    between = [batch for _, batch in first.process(given)]
    return through(second, between)


def measure(rounds: int) -> dict[str, float]:
    plain, tracked = batches(ROWS, BATCHES), batches(ROWS, BATCHES, tracked=True)
    few, waiting = batches(500, 4), batches(WAITING_ROWS, 1)
    frames, tables = Logic(vectorised, Per.PANDAS), Logic(arrow, Per.ARROW)
    found = {}
    segments = {
        "pandas": chain(frames),
        "frames": chain(Logic(over_frames, Per.MAP_IN_PANDAS)),
        "audited": chain(frames, audit=True),
        "arrow": chain(tables),
        "row": chain(Logic(compute)),
        "three": chain(*[Logic(compute)] * 3),
        "nothing": chain(Logic(nothing)),
        "same": chain(Logic(same, Per.ARROW)),
    }
    found["pandas_ratio"] = ratio(
        lambda: pandas_by_hand(plain), lambda: through(segments["pandas"], plain), rounds, cpu_of
    )
    found["frames_ratio"] = ratio(
        lambda: pandas_by_hand(plain), lambda: through(segments["frames"], plain), rounds, cpu_of
    )
    found["audited_ratio"] = ratio(
        lambda: pandas_by_hand(plain), lambda: through(segments["audited"], tracked), rounds, cpu_of
    )
    found["arrow_ratio"] = ratio(
        lambda: arrow_by_hand(plain), lambda: through(segments["arrow"], plain), rounds, cpu_of
    )
    found["row_ratio"] = ratio(lambda: rows_by_hand(few, 1), lambda: through(segments["row"], few), rounds, cpu_of)
    found["three_ratio"] = ratio(lambda: rows_by_hand(few, 3), lambda: through(segments["three"], few), rounds, cpu_of)
    found["row_rate"] = 5 * ROWS / min(cpu_of(lambda: through(segments["nothing"], plain[:5])) for _ in range(rounds))
    found["pandas_rate"] = (
        BATCHES * ROWS / min(cpu_of(lambda: through(segments["pandas"], plain)) for _ in range(rounds))
    )
    found["batch_us"] = 1e6 / BATCHES * min(cpu_of(lambda: through(segments["same"], plain)) for _ in range(rounds))
    one, other, both = (chain(*[Logic(wait)] * count, threads=WAITING_THREADS) for count in (1, 1, 2))
    found["overlap_ratio"] = ratio(
        lambda: waiting_one_after_the_other(one, other, waiting), lambda: through(both, waiting), 3, seconds_of
    )
    for segment in (*segments.values(), one, other, both):
        segment.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.rounds)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        unit = " rows/s" if name.endswith("_rate") else " us" if name.endswith("_us") else ""
        print(f"{name:14} {value:,.0f}{unit}" if unit else f"{name:14} {value:.3f}")


if __name__ == "__main__":
    main()
