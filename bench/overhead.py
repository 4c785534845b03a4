"""What running a pipeline as Penstock does costs beside the same code in a hand-written PySpark query.

    ./run bench overhead [--json] [--rounds N] [--only CASE]

Both queries run in one session on two slots, a few batches each, turn by turn and in turns first; the first round, in
which Java compiles, does not count. A ratio is (rows/s of Penstock) / (rows/s by hand), each that of its fastest whole
micro-batch of all rounds: whatever else the machine, or its host, does only ever slows one down. `..._median` is the
median of the ratios of single rounds, `..._spread` how far these were apart.

    pandas_ratio    vectorised numpy code per pandas batch    against mapInPandas
    arrow_ratio     vectorised Arrow code                     against mapInArrow
    spark_ratio     Spark's own column expressions            against the plain query
    row_ratio       heavy code per row                        against a loop over rows in mapInPandas
    audited_ratio   pandas code with every id audited         against mapInPandas on the same source
    waiting_ratio   64 threads that wait 20 ms a row          against a pool of 64 threads in mapInPandas
    overlap_ratio   two operators of 16 threads that wait 20 ms, against 16 threads that do one wait after the other

`pandas_tuned_ratio` and `arrow_tuned_ratio` are against the same query by hand, by somebody who knows that Spark asks
for the bytes of a batch after every row and turns that off, as Penstock does where rows have a fixed width.
`overlap_predicted_ratio` is what a quick profile of the two operators predicts for them: rows/s predicted / seen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

import penstock
from penstock.base.files import temporary_folder
from penstock.dataflow.code import code_of
from penstock.dataflow.load import Load
from penstock.engines.fused.preparation import prepare
from penstock.engines.fused.query import MOST_BYTES, NO_LOOK, FusedQuery, FusedSpec
from penstock.runs.config import RunConfig
from penstock.spark import load_source
from penstock.spark.session.embedded import embedded_session, with_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.builder import PipelineBuilder

SLOTS = 2
BATCHES = 7
"""Per round and query; the first does not count."""
ALL_OF_IT = 1e9


def scored_frame(frame: pd.DataFrame) -> pd.DataFrame:
    value = frame["value"].to_numpy()
    return frame[["value"]].assign(score=np.sqrt(value) * np.sin(value) + np.log1p(value))


def scored_table(table: Any) -> Any:
    value = pc.cast(table.column("value"), "double")
    score = pc.add(pc.multiply(pc.sqrt(value), pc.sin(value)), pc.log1p(value))
    return table.select(["value"]).append_column("score", score)


def heavy_row(row: dict[str, Any]) -> dict[str, Any]:
    x = float(row["value"] % 1000)
    for _ in range(200):
        x = (x * 1.000001 + 0.5) % 1000.0
    return {"value": row["value"], "score": x}


def wait_20_ms(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.02)
    return {"value": row["value"]}


def by_hand_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield scored_frame(frame)


def by_hand_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield scored_table(batch)


def by_hand_rows(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    import pandas as pd  # noqa: PLC0415 - in the worker

    for frame in frames:
        yield pd.DataFrame.from_records([heavy_row(row) for row in frame.to_dict("records")])


_pools: dict[int, ThreadPoolExecutor] = {}


def by_hand_pool(
    threads: int, code: Callable[[dict[str, Any]], dict[str, Any]]
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def through_pool(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415 - in the worker

        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads)
        for frame in frames:
            yield pd.DataFrame.from_records(list(_pools[threads].map(code, frame.to_dict("records"))))

    return through_pool


SCORED = "value long, score double"


@dataclass(frozen=True)
class Case:
    """`rows` per batch. `load`: from the load generator, audited, instead of Spark's own source."""

    name: str
    rows: int
    ours: Callable[[PipelineBuilder], PipelineBuilder]
    by_hand: Callable[[DataFrame], DataFrame]
    threads: int = 1
    load: bool = False
    tuned: bool = False
    """Also against a query by hand that has Penstock's settings."""


def spark_own(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("value", "sqrt(value) * sin(value) + ln(1 + value) as score").where("score > 0")


CASES = (
    Case(
        "pandas_ratio",
        2_000_000,
        lambda p: p.then("score", logic=scored_frame, per="pandas", schema=SCORED),
        lambda frame: frame.mapInPandas(by_hand_pandas, SCORED),
        tuned=True,
    ),
    Case(
        "arrow_ratio",
        4_000_000,
        lambda p: p.then("score", logic=scored_table, per="arrow", schema=SCORED),
        lambda frame: frame.mapInArrow(by_hand_arrow, SCORED),
        tuned=True,
    ),
    Case(
        "spark_ratio",
        8_000_000,
        lambda p: p.then("score", logic=spark_own, per="dataframe"),
        spark_own,
    ),
    Case(
        "row_ratio",
        60_000,
        lambda p: p.then("score", logic=heavy_row, schema=SCORED),
        lambda frame: frame.mapInPandas(by_hand_rows, SCORED),
    ),
    Case(
        "audited_ratio",
        1_000_000,
        lambda p: p.then("score", logic=scored_frame, per="pandas", schema=SCORED),
        lambda frame: frame.mapInPandas(by_hand_pandas, SCORED),
        load=True,
    ),
    Case(
        "waiting_ratio",
        12_800,
        lambda p: p.then("ask", logic=wait_20_ms, schema="value long"),
        lambda frame: frame.mapInPandas(by_hand_pool(64, wait_20_ms), "value long"),
        threads=64,
    ),
    Case(
        "overlap_ratio",
        3_200,
        lambda p: p.then("first", logic=wait_20_ms, schema="value long").then(
            "second", logic=wait_20_ms, schema="value long"
        ),
        lambda frame: frame.mapInPandas(by_hand_pool(16, lambda row: wait_20_ms(wait_20_ms(row))), "value long"),
        threads=16,
    ),
)


def options_of(case: Case) -> dict[str, Any]:
    return {"rowsPerBatch": case.rows, "numPartitions": SLOTS}


def best_rate(progress: list[Any]) -> float:
    """Rows/s of the fastest whole batch, the first left out."""
    counted = [p for p in progress if p.numInputRows][1:]
    return float(max(1000 * p.numInputRows / p.durationMs["triggerExecution"] for p in counted))


def run_ours(session: SparkSession, case: Case, folder: Path, number: int) -> float:
    name = f"{case.name}-{number}"
    builder = penstock.pipeline(case.name)
    if case.load:
        builder.source("numbers")
    else:
        builder.source("numbers", format="rate-micro-batch", options=options_of(case))
    pipeline = case.ours(builder).sink("out", format="noop").build()
    code = {n: logic for n, operator in pipeline.operators.items() if (logic := code_of(operator)) is not None}
    spec = FusedSpec(
        run=name,
        pipeline=pipeline,
        code=code,
        threads=dict.fromkeys(code, case.threads),
        slots=SLOTS,
        folder=folder / name,
        checkpoint=str(folder / name / "checkpoint"),
        load=Load.constant(ALL_OF_IT) if case.load else None,
        most_rows=case.rows,
        audit=case.load,
        config=RunConfig(batch_interval_ms=1),
    )
    query = FusedQuery(session, spec)
    try:
        query.begin()
        return best_rate(_until(query.poll, lambda: query.progress))
    finally:
        query.stop()


def run_by_hand(session: SparkSession, case: Case, folder: Path, number: int) -> float:
    place = folder / f"{case.name}-{number}-by-hand"
    place.mkdir()
    if case.load:
        load_source.bound_batches(place, case.rows)
        frame = load_source.load_frame(session, Load.constant(ALL_OF_IT), SLOTS, place).select("value")
    else:
        frame = session.readStream.format("rate-micro-batch").options(**options_of(case)).load()
    made = case.by_hand(frame).writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint"))
    query = made.trigger(processingTime="1 milliseconds").start()
    try:
        if case.load:
            load_source.begin(place)
        return best_rate(_until(lambda: None, lambda: query.recentProgress))
    finally:
        query.stop()


def run_tuned(session: SparkSession, case: Case, folder: Path, number: int) -> float:
    with with_settings(session, {MOST_BYTES: NO_LOOK}):
        return run_by_hand(session, replace(case, name=f"tuned-{case.name}"), folder, number)


def _until(poll: Callable[[], object], progress: Callable[[], list[Any]]) -> list[Any]:
    while True:
        poll()
        seen = progress()
        if len([p for p in seen if p.numInputRows]) >= BATCHES:
            return seen
        time.sleep(0.1)


def measured(session: SparkSession, case: Case, folder: Path, rounds: int, *, quiet: bool) -> dict[str, float]:
    ours: list[float] = []
    by_hand: list[float] = []
    tuned: list[float] = []
    for number in range(rounds + 1):
        turns = [(run_ours, ours), (run_by_hand, by_hand), *([(run_tuned, tuned)] if case.tuned else [])]
        for turn, seen in turns if number % 2 else reversed(turns):
            seen.append(turn(session, case, folder, number))
        if not quiet:
            ratio = ours[-1] / by_hand[-1]
            print(f"{case.name}: {ours[-1]:,.0f} rows/s, by hand {by_hand[-1]:,.0f}: {ratio:.3f}", flush=True)
    ratios = [a / b for a, b in zip(ours[1:], by_hand[1:], strict=True)]
    name = case.name.removesuffix("_ratio")
    return {
        case.name: max(ours[1:]) / max(by_hand[1:]),
        **({f"{name}_tuned_ratio": max(ours[1:]) / max(tuned[1:])} if tuned else {}),
        f"{name}_median": statistics.median(ratios),
        f"{name}_spread": max(ratios) - min(ratios),
        f"{name}_rows_per_s": max(ours[1:]),
    }


def predicted_overlap(case: Case, folder: Path) -> float:
    """Rows/s of the two operators that wait, as a profile of them says, in batches as large as those that were run."""
    models = folder / "models.json"
    pipeline = case.ours(penstock.pipeline(case.name).source("numbers")).sink("out").build()
    penstock.profile(pipeline, models, quick=True, most_threads=case.threads)
    job = prepare(pipeline, RunConfig(rate=ALL_OF_IT, slots=SLOTS, models=models))
    return replace(job.setup, most_rows=case.rows).rate() if job.setup else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", choices=[case.name for case in CASES], action="append", help="may be repeated")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    figures: dict[str, float] = {}
    chosen = [case for case in CASES if words.only is None or case.name in words.only]
    with temporary_folder("bench") as folder:
        with embedded_session(SLOTS) as session:
            for case in chosen:
                figures |= measured(session, case, folder, words.rounds, quiet=words.json)
        if chosen[-1].name == "overlap_ratio":
            predicted = predicted_overlap(chosen[-1], folder)
            figures["overlap_predicted_ratio"] = predicted / figures["overlap_rows_per_s"]
    if words.json:
        json.dump(figures, sys.stdout, indent=2)
        print()
    else:
        for name, value in figures.items():
            print(f"{name:24} {value:,.3f}")


if __name__ == "__main__":
    main()
