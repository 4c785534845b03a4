"""Small pipelines and plans for a conductor whose bundles are plain processes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.base.clock import now
from penstock.base.errors import RunError
from penstock.cluster.topology import Slot
from penstock.connectors.commit import Commit
from penstock.connectors.staged_sinks import SinkFiles
from penstock.connectors.url_checkpoint import checkpoint_at
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed.bundle_plan import Code, LaidOut, lay_out
from penstock.engines.placed.conductor import Conductor, ConductorSetting
from penstock.engines.placed.flow.states import Patience
from penstock.engines.placed.launchers import LocalLauncher


def line(*code: Logic) -> Pipeline:
    """src -> op0 -> op1 ... -> out."""
    names = ["src", *(f"op{n}" for n in range(len(code))), "out"]
    operators = [
        Operator(name="src", kind=Kind.SOURCE),
        *(Operator(name=f"op{n}", logic=one) for n, one in enumerate(code)),
        Operator(name="out", kind=Kind.SINK),
    ]
    return Pipeline.of("line", operators, [Stream(sender=a, receiver=b) for a, b in pairwise(names)])


VALUE = pa.schema([("value", pa.int64())])


def code_of(pipeline: Pipeline, folder: Path, **schemas: pa.Schema) -> Code:
    """Sinks write Parquet below `folder`; code sends numbers unless `schemas` say otherwise."""
    logic = {name: one.logic for name, one in pipeline.operators.items() if one.logic is not None}
    sinks = {
        name: SinkFiles(str(folder / name), "parquet") for name, one in pipeline.operators.items() if one.kind == "sink"
    }
    known = dict.fromkeys(logic, VALUE) | schemas
    return Code(pipeline, logic, known, sinks)


def laid_out(code: Code, where: dict[str, dict[Slot, int]], plan: str = "plan") -> LaidOut:
    """Every operator a segment of its own, with threads by slot."""
    slots = dict.fromkeys(slot for row in where.values() for slot in row)
    threads = {slot: {op: row[slot] for op, row in where.items() if slot in row} for slot in slots}
    segments = [(name,) for name in code.pipeline.operators]
    return lay_out(code, segments, threads, lambda _op, count: float(count), plan)


def conductor(
    folder: Path,
    plan: LaidOut,
    rate: float,
    launcher: LocalLauncher,
    began: float | None = None,
    refuge: Callable[[Any], LaidOut] | None = None,
    place: str | None = None,
    identity: str | None = None,
    **patience: Any,
) -> Conductor:
    """From the last commit in `folder`, or from the beginning."""
    checkpoint = checkpoint_at(place or str(folder / "checkpoint"))
    checkpoint.create()
    run = f"r-{folder.parent.name}-{folder.name}"
    last = checkpoint.last() or Commit(run=run, conductor=0, generation=0, epoch=0, plan=plan.layout.plan)
    taken = checkpoint.take_over(last, plan.layout.plan)

    def nowhere(_unusable: object) -> LaidOut:
        raise RunError("nowhere to go")

    waiting = {"epoch": 0.2, "silence": 3.0, **patience}
    setting = ConductorSetting(
        run,
        checkpoint,
        "127.0.0.1",
        Load.constant(rate),
        now() if began is None else began,
        refuge or nowhere,
        patience=Patience(**waiting),
        identity=identity,
    )
    return Conductor(setting, launcher, plan, taken)
