"""The run that `bench/chaos.py` hurts: its pipeline, its plans, and a process that conducts it."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import penstock
from penstock.base.clock import now, pause
from penstock.base.errors import BadInputError, RunError
from penstock.base.files import write_text
from penstock.cluster.file import read_cluster
from penstock.cluster.topology import Slot
from penstock.connectors.staged_sinks import SinkFiles, publish
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed.bundle_plan import Code, LaidOut, lay_out
from penstock.engines.placed.conductor import Conductor, ConductorSetting
from penstock.engines.placed.flow.states import Patience
from penstock.engines.placed.launchers import LocalLauncher
from penstock.engines.placed.replacement import with_threads
from penstock.engines.placed.run_control import Conducting, Plans, RunControl
from penstock.planning.files import SavedPlan
from penstock.runs.config import RunConfig
from penstock.runs.description import RunDescription
from penstock.runs.folder import FolderRequest, RunFolder
from penstock.spark.clusters.local.lifecycle import find_cluster

if TYPE_CHECKING:
    from concurrent.futures import Future

RATE = 400.0
SLOTS = {"a": Slot("n1", 0), "b": Slot("n1", 1), "c": Slot("n2", 0), "d": Slot("n2", 1)}
PLANS: dict[str, dict[str, dict[str, int]]] = {
    "one": {"a": {"src": 1, "left": 1}, "b": {"right": 1, "join": 1}, "c": {"join": 1, "out": 1}},
    "two": {"a": {"src": 1}, "b": {"left": 2, "right": 1}, "d": {"join": 1, "out": 1}},
}
"""Threads by slot and operator."""


def answer_differently(_row: dict[str, Any]) -> dict[str, Any]:
    return {"value": random.randrange(10**9)}  # noqa: S311 - any other answer will do


def diamond(folder: Path) -> Pipeline:
    """Every tuple takes two ways."""
    code = Logic(answer_differently, schema="value bigint")
    operators = [
        Operator(name="src", kind=Kind.SOURCE),
        *(Operator(name=name, logic=code, threads=1, cpu=5, memory_mb=32) for name in ("left", "right", "join")),
        Operator(name="out", kind=Kind.SINK, format="parquet", options={"path": str(folder / "out")}),
    ]
    ways = (("src", "left"), ("src", "right"), ("left", "join"), ("right", "join"), ("join", "out"))
    return Pipeline.of("diamond", operators, [Stream(sender=a, receiver=b) for a, b in ways])


def plan_names(folder: Path) -> list[str]:
    """Files that a run can be asked to go on with."""
    return [str(folder / f"{name}.json") for name in PLANS]


def disregard_lease() -> None:
    """This process takes the run over, whoever conducts it and says so."""
    setattr(RunFolder, "held_by", None)  # noqa: B010 - a property


# Without Spark.


def conduct_locally(folder: Path) -> None:
    """Until somebody asks for the end, with plain processes as bundles."""
    schema = pa.schema([("value", pa.int64())])
    pipeline = diamond(folder)
    logic = {name: operator.logic for name, operator in pipeline.operators.items() if operator.logic is not None}
    code = Code(pipeline, logic, dict.fromkeys(logic, schema), {"out": SinkFiles(str(folder / "out"), "parquet")})

    def laid_out(name: str) -> LaidOut:
        threads = {SLOTS[slot]: row for slot, row in PLANS[name].items()}
        segments = [(operator,) for operator in pipeline.operators]
        return lay_out(code, segments, threads, lambda _, count: float(count), name)

    run = RunFolder(folder / "run")
    run.create()
    if not (folder / "run" / "run.json").exists():
        run.describe(
            RunDescription(
                run="chaos",
                pipeline="diamond",
                config=RunConfig(engine="placed", rate=RATE, segmenter="none"),
                began=now(),
            )
        )
    disregard_lease()
    commit = run.take_over("one")
    publish(commit.outputs)
    setting = ConductorSetting(
        commit.run,
        run.checkpoint,
        "127.0.0.1",
        Load.constant(RATE),
        run.description.began,
        lambda _: _nowhere(),
        on_message=lambda text: print(text, flush=True),
        patience=Patience(epoch=0.3, silence=2.0, most_failures=10**6),
    )
    launcher = LocalLauncher()
    conductor = Conductor(setting, launcher, laid_out(commit.plan), commit)
    plans = Plans(lambda path, _: laid_out(path.stem), _refuse)
    control = RunControl()

    def look(_ran: float) -> None:
        conductor.done.clear()
        for request in run.requests():
            ask = "change" if request.ask == "rescale" else request.ask
            asked = control.ask(ask, None if request.plan is None else Path(request.plan))
            asked.add_done_callback(partial(_answer, run, request))

    try:
        Conducting(conductor, control, plans, look).run(None)
    finally:
        conductor.close()
        launcher.close()
        run.release()


def _answer(run: RunFolder, request: FolderRequest, asked: Future[float]) -> None:
    error = asked.exception()
    if isinstance(error, Exception):
        run.answer_error(request, error)
    else:
        run.answer(request, seconds=asked.result())


def _nowhere() -> LaidOut:
    raise RunError("there is no other slot")


def _refuse(_slots: int) -> LaidOut:
    raise BadInputError("this run is not rescaled")


# On Spark.


class _Shown(penstock.Listener):
    def on_message(self, text: str) -> None:
        print(text, flush=True)


def conduct_on_spark(folder: Path) -> None:
    """Until somebody asks for the end, on the cluster of `penstock cluster up`."""
    pipeline = diamond(folder)
    for name in PLANS:
        if not (folder / f"{name}.json").exists():
            write_text(folder / f"{name}.json", _plan(pipeline, name))
    started = (folder / "run" / "run.json").exists()
    plan = RunFolder(folder / "run").plan()[0] if started else folder / "one.json"
    disregard_lease()
    handle = penstock.start(
        plan, RATE, engine="placed", folder=folder / "run", given=pipeline, warm_up=1.0, listener=_Shown()
    )
    while not handle.await_termination(0.5):
        pause(0.1)


def _plan(pipeline: Pipeline, name: str) -> str:

    file = find_cluster().cluster_file
    planned = penstock.plan(pipeline, RATE, cluster=file, placer="round-robin")
    threads = {SLOTS[slot]: dict(row) for slot, row in PLANS[name].items()}
    return with_threads(SavedPlan.model_validate(planned.document()), threads, read_cluster(file)).model_dump_json()
