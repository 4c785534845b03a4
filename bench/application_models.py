"""Models of the applications' operators, measured in a slot's own machinery without Spark.

    python bench/application_models.py [--seconds S] [-o FILE] [--json]

Every operator with code per row gets what the operators before it make of the first messages, in a segment of its own
with 1, 2 and, where more threads still do more, 4 and 8 threads, for S seconds each. What Spark adds to a batch is not
in it: `penstock profile NAME` measures that too, on the machine that will run it. `operators` is how many were
measured, `slowest` and `fastest` the lowest and highest rate of one thread.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa

from penstock.base.clock import Stopwatch, cpu_seconds, today
from penstock.base.files import write_output
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Kind, topological_order
from penstock.inputs.finders import builtin_pipeline, known_pipelines, logic_of
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Step
from profile_applications import PROFILED

if TYPE_CHECKING:
    from penstock.dataflow.logic import Logic

MESSAGES = 2_000
SLOT_MEMORY_MB = 3584
RISING = 1.2
"""More threads are tried as long as twice as many do so much more."""
TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
HOW = "measured: bench/application_models.py, a slot's segment without Spark, on two idle cores; rounded"

_RANKS = json.dumps([{"count": 100 - rank, "value": f"tag{rank}"} for rank in range(5)])
BEHIND_SPARK = {
    "twitter-sentiment/report": pa.table({"window_end": np.arange(100.0), "first": pa.array([_RANKS] * 100)}),
}
"""What operators get that Spark's own operators send: they do not run here."""


def schema_of(words: str) -> pa.Schema:
    pairs = (column.split() for column in words.split(", "))
    return pa.schema([(name, TYPES[kind]) for name, kind in pairs])


def trial(name: str, code: Logic, rows: pa.Table, threads: int, seconds: float) -> tuple[dict[str, Any], pa.Table]:
    """A point, and what came out."""
    made: list[pa.RecordBatch] = []
    step = Step(name, code, threads, schema=schema_of(code.schema or ""), leaves=True)
    # a short queue: what is fed when the time is over must still be done
    segment = Segment([step], SegmentOptions(queue_rows=64), lambda _, batch: made.append(batch.rows))
    batches = [Batch(batch, Marks()) for batch in rows.to_batches(max_chunksize=25)]
    try:
        before = psutil.Process().memory_info().rss
        watch, cpu, count = Stopwatch(), cpu_seconds(), 0
        out: list[pa.RecordBatch] = []
        while watch.seconds() < seconds:
            for batch in batches:
                segment.feed(batch)
                count += len(batch)
                if watch.seconds() >= seconds:
                    break
            out = out or list(made)
            made.clear()
        segment.flush()
        taken = watch.seconds()
        used = (cpu_seconds() - cpu) / taken
        grown = max(0, psutil.Process().memory_info().rss - before) / 2**20 / SLOT_MEMORY_MB
    finally:
        segment.close()
    point = {
        "threads": threads,
        "rate": _rounded(count / taken),
        "cpu": round(min(1.0, used), 2),
        "memory": max(0.01, round(grown, 3)),
    }
    return {**point, "provenance": dict.fromkeys(("rate", "cpu", "memory"), HOW)}, pa.Table.from_batches(
        out, step.schema
    )


def _rounded(rate: float) -> float:
    """Two figures that count."""
    return float(f"{rate:.2g}")


def models_of(pipeline_name: str, seconds: float) -> dict[str, Any]:
    pipeline = builtin_pipeline(pipeline_name)
    code = logic_of(pipeline)
    numbers = pa.table({"value": np.arange(MESSAGES)})
    out: dict[str, pa.Table] = dict.fromkeys(pipeline.sources, numbers)
    models = {}
    for name in topological_order(pipeline):
        operator = pipeline.operators[name]
        senders = [stream.sender for stream in pipeline.inputs(name)]
        if operator.kind is not Kind.OPERATOR or operator.model is not None:
            continue
        if name not in code or code[name].per is not Per.ROW:
            continue
        rows = BEHIND_SPARK.get(f"{pipeline_name}/{name}") or out[senders[0]]
        points, threads = [], 1
        while threads <= 8:
            point, made = trial(name, code[name], rows, threads, seconds)
            points.append(point)
            if threads == 1:
                out[name] = made
            if threads > 1 and point["rate"] < RISING * points[-2]["rate"]:
                break
            threads *= 2
        models[f"{pipeline_name}/{name}"] = {
            "points": points,
            "measured_on": {
                "what": "a segment of a slot without Spark",
                "cores": psutil.cpu_count(),
                "slot_memory_mb": SLOT_MEMORY_MB,
                "date": today(),
                "per": "row",
            },
        }
    return models


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=0.4)
    arguments.add_argument("-o", "--output", type=Path)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    models: dict[str, Any] = {}
    whole = {name for name, operators in PROFILED.items() if operators is None}
    for name in known_pipelines():
        pipeline = builtin_pipeline(name)
        if name not in whole and any(
            (operator.run or "").startswith("penstock.workloads.applications")
            for operator in pipeline.operators.values()
        ):
            models |= models_of(name, given.seconds)
    rates = [model["points"][0]["rate"] for model in models.values()]
    if given.output is not None:
        about = "Operators of the documents' applications. Measure yours with: penstock profile NAME -o models.json"
        write_output(given.output, json.dumps({"about": about, "models": models}, indent=1) + "\n")
    print(json.dumps({"operators": len(models), "slowest": min(rates), "fastest": max(rates)}))


if __name__ == "__main__":
    main()
