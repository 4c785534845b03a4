"""Plans on a cluster, as functions: `penstock.run_placed(...)`, `penstock.drain(...)`, `penstock.resume(...)`."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch, stamp
from penstock.dataflow.load import Load
from penstock.errors import BadInputError, ClusterError
from penstock.files import write_text
from penstock.modelling.fit import misfits
from penstock.modelling.machine import this_machine
from penstock.modelling.model import Model
from penstock.placed_job import DEFAULT_PLACED_SEGMENTER, TICKET_SECONDS, PlacedJob, check_nodes, prepare_placed
from penstock.report.placed_result import PlacedResult
from penstock.report.result import TriedRate
from penstock.running import check_search, logic_of
from penstock.workloads.operators import services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock import api
    from penstock.dataflow.pipeline import Pipeline
    from penstock.prediction.rate import Routing
    from penstock.report.report import Report
    from penstock.running import RunnableLike
    from penstock.spark.bundles import Bundle
    from penstock.spark.cluster_state import RunningCluster
    from penstock.spark.placed_run import PlacedRun

EXECUTOR_MEMORY_MB = 512
"""Of the Java process of a slot; its Python workers hold the data."""
SHORTEST_INTERVAL_MS = 200
INTERVAL_MS_PER_BUNDLE = 60
"""Micro-batches are what the driver runs out of first: the more bundles, the less often each is looked after."""
PATIENCE_SECONDS = 180.0
OVERLOAD = 2.0
"""Times what the plan's slots support: more than can be done."""


def interval_ms(bundles: int) -> int:
    return max(SHORTEST_INTERVAL_MS, INTERVAL_MS_PER_BUNDLE * bundles)


@dataclass(frozen=True)
class Wishes:
    """How a run is to be conducted. `given`: the pipeline itself, where its code exists only in Python."""

    seconds: float
    warm_up: float
    models: api.ModelsLike
    given: Pipeline | None
    dead_letters: Path | None
    show: Callable[[str, str], None] | None
    heard: Callable[[PlacedRun, float], None]
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up < self.seconds:
            raise BadInputError(f"seconds: expected more than the warm-up of {self.warm_up:g}, found {self.seconds:g}")


def find_master(master: str | None) -> tuple[str, RunningCluster | None]:
    """The address, and the cluster on this machine it belongs to; None asks for the one of `penstock cluster up`."""
    from penstock.spark.standalone import find_cluster  # noqa: PLC0415 - Spark loads only when it is used

    try:
        cluster = find_cluster()
    except ClusterError:
        if master is None:
            raise
        return master, None
    return (cluster.master_url, cluster) if master in {None, cluster.master_url} else (str(master), None)


@contextmanager
def _session(master: str, cluster: RunningCluster | None, name: str) -> Iterator[Any]:
    from penstock.spark.cluster_session import start_cluster_session  # noqa: PLC0415 - Spark loads only when used
    from penstock.spark.session import end_session  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder:
        settings = {} if cluster is None else cluster.session_settings()
        session = start_cluster_session(master, Path(folder) / "java.log", name, settings)
        try:
            yield session
        finally:
            end_session(session)


def run_placed(
    plan: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    master: str | None = None,
    seconds: float = 30.0,
    warm_up: float = 10.0,
    find_max: bool = False,
    low: float | None = None,
    high: float | None = None,
    models: api.ModelsLike = None,
    routing: Routing | str | None = None,
    segmenter: str | None = None,
    folder: str | Path | None = None,
    given: Pipeline | None = None,
    dead_letters: str | Path | None = None,
    show: Callable[[str, str], None] | None = None,
    heard: Callable[[PlacedRun, float], None] = lambda _run, _seconds: None,
    tell: Callable[[str], None] = lambda _text: None,
) -> PlacedResult:
    """Run a plan with every operator on the slot the plan names, on a standalone cluster.

    `master` is its address; None means the one of `penstock cluster up`. What `segmenter` joins and the plan puts on
    the same slots runs as one. `folder` is where the run keeps its channels and what it needs to be resumed: on several
    machines, one they all share. `heard` is called often with the run, `tell` with what it has to say, `show` with
    (sink, tuple as JSON) of what reaches a console. With `find_max` the highest stable rate is looked for, between
    `low` and `high`; every trial is a run of `seconds` in a folder of its own.
    """
    check_search(low, high, rate, search=find_max)
    job = prepare_placed(plan, rate, models, routing, given, segmenter or DEFAULT_PLACED_SEGMENTER)
    place = Path(folder) if folder is not None else _fresh_folder(job.pipeline.name)
    if (place / "run.json").exists():
        raise BadInputError(f"{place}: a run was started here before; resume it (penstock resume), or name another")
    letters = None if dead_letters is None else Path(dead_letters)
    wishes = Wishes(seconds, warm_up, models, given, letters, show, heard, tell)
    if find_max:
        return _searched(job, place, master, wishes, low, high)
    return _conducted(job, place, master, wishes)


def _searched(
    job: PlacedJob, place: Path, master: str | None, wishes: Wishes, low: float | None, high: float | None
) -> PlacedResult:
    """Trials with other loads until the highest stable rate is known; the result is that of the best of them."""
    from penstock.spark.find_max import MORE_THAN_ANY, find_highest_rate  # noqa: PLC0415 - Spark loads only when it is used

    results: list[PlacedResult] = []
    too_much = OVERLOAD * (job.slots_rate() or 0.0)
    if high is None and not too_much:
        raise BadInputError("--find-max: the plan predicts no rate to start from; give --high")

    def offer(rate: float) -> Report:
        load = Load.constant(too_much if rate == MORE_THAN_ANY else rate)
        wishes.tell(f"trial {len(results) + 1}: offering {load.mean_rate:,.4g} tuples/s")
        results.append(_conducted(replace(job, load=load), place / f"trial-{len(results) + 1}", master, wishes))
        return results[-1].report

    found = find_highest_rate(offer, lambda: bool(results) and results[-1].interrupted, low, high)
    shown = found.trials.index(found.best) if found.best else -1
    tried = tuple(TriedRate(one.rate, one.stable, one.report.sustained_rate, one.saturated) for one in found.trials)
    return replace(
        results[shown],
        searched=True,
        highest_rate=found.best.rate if found.best else None,
        tried=tried,
        interrupted=results[-1].interrupted,
    )


def _conducted(
    job: PlacedJob,
    place: Path,
    master: str | None,
    wishes: Wishes,
    generation: int = 0,
    emitted: Mapping[str, int] | None = None,
    onto: Path | None = None,
) -> PlacedResult:
    """The whole of a run: services, session, queries, and their end."""
    address, cluster = find_master(master)
    if cluster is not None:
        check_nodes(job, cluster)
    needed = {operator.model or name for name, operator in job.pipeline.operators.items()}
    for warning in misfits([one for one in job.demands.values() if isinstance(one, Model)], this_machine()):
        wishes.tell(warning)
    with services(needed, given=os.environ) as environment, _session(address, cluster, job.pipeline.name) as session:
        from penstock.spark.conducting import conduct  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.spark.file_feed import FileFeed  # noqa: PLC0415
        from penstock.spark.file_index import indexes_of  # noqa: PLC0415
        from penstock.spark.fused import arrow_schema  # noqa: PLC0415
        from penstock.spark.interrupts import Interrupt, interrupts  # noqa: PLC0415
        from penstock.spark.placed_run import PlacedRun, PlacedSetup  # noqa: PLC0415
        from penstock.spark.requests import RunFolder  # noqa: PLC0415
        from penstock.spark.sinks import ends_of  # noqa: PLC0415

        folder = RunFolder(place)
        folder.create()
        saying = _Description(folder, job, address, generation, dict(emitted or {}))
        saying.write()
        feed = FileFeed(folder.path, indexes_of(job.pipeline))
        ends = ends_of(job.pipeline, logic_of(job.pipeline), wishes.dead_letters, arrow_schema)
        ends.make_folders()
        bundles = job.bundles(generation, feed)
        setup = PlacedSetup(
            folder.path,
            job.load,
            environment,
            job.most_rows,
            TICKET_SECONDS,
            interval_ms(len(bundles)),
            EXECUTOR_MEMORY_MB,
            None if cluster is None else cluster.web_url,
            {node.name: node.slots for node in (cluster.nodes if cluster is not None else job.plan.nodes)},
            feed,
            ends,
            wishes.show,
        )
        run = PlacedRun(session, setup, bundles, emitted, wishes.tell)

        def bundles_of(path: Path) -> Sequence[Bundle]:
            other = _other_plan(path, job, cluster, wishes)
            saying.next(other, run.dispatcher.emitted)
            return other.bundles(saying.generation, feed)

        started, interrupt = Stopwatch(), Interrupt()
        with interrupts(interrupt):
            folder.sign()
            try:
                wishes.tell(f"starting {len(bundles)} bundles on {len(job.threads)} slots; folder {folder.path}")
                run.start(lambda: interrupt.asked)
                if onto is not None:
                    run.drain()
                    run.replace(bundles_of(onto))
                else:
                    run.begin()
                start_seconds = started.seconds()
                done = conduct(run, folder, wishes.seconds, bundles_of, lambda: interrupt.asked, wishes.heard)
            finally:
                run.stop()
                folder.sign_off()
        report = run.report(done.held, wishes.warm_up, done.backlog)
    return PlacedResult(
        job.pipeline.name,
        str(place),
        str(job.routing),
        job.slots_rate(),
        None if cluster is None else job.machine_rate(os.cpu_count() or 1, len(bundles)),
        job.predicted_slots(),
        report,
        tuple(run.places[name] for name in sorted(run.places)),
        done.changes,
        start_seconds,
        done.drain_seconds,
        interrupt.asked,
    )


def _other_plan(path: Path, job: PlacedJob, cluster: RunningCluster | None, wishes: Wishes) -> PlacedJob:
    other = prepare_placed(path, job.load, wishes.models, job.routing, wishes.given, job.segmenter)
    if set(other.pipeline.operators) != set(job.pipeline.operators):
        raise BadInputError(f"{path}: a plan for other operators than those of '{job.pipeline.name}'")
    if cluster is not None:
        check_nodes(other, cluster)
    return other


class _Description:
    """What a folder says about its run, so that another process can go on with it."""

    def __init__(self, folder: Any, job: PlacedJob, master: str, generation: int, emitted: Mapping[str, int]) -> None:
        self._folder = folder
        self._job = job
        self._master = master
        self._emitted = emitted
        self.generation = generation

    def write(self) -> None:
        plan = f"plan-{self.generation:03d}.json"
        write_text(self._folder.path / plan, json.dumps(self._job.plan.model_dump(mode="json")) + "\n")
        self._folder.describe(
            {
                "pipeline": self._job.pipeline.name,
                "master": self._master,
                "generation": self.generation,
                "plan": plan,
                "emitted": self._emitted,
                "load": self._job.load.document(),
                "routing": str(self._job.routing),
                "segmenter": self._job.segmenter,
                "segments": [list(segment) for segment in self._job.segments],
            }
        )

    def next(self, job: PlacedJob, emitted: Mapping[str, int]) -> None:
        """Another plan takes over, after a drain."""
        self._job, self._emitted = job, dict(emitted)
        self.generation += 1
        self.write()


def drain(folder: str | Path, *, stop: bool = False, patience: float = PATIENCE_SECONDS) -> float:
    """Ask a run to stop its sources and finish what is in flight; it then waits to be resumed, or ends (`stop`).

    The seconds that took.
    """
    from penstock.spark.requests import RunError, RunFolder  # noqa: PLC0415 - psutil belongs to the extra

    run = RunFolder(Path(folder))
    name = run.description["pipeline"]
    if not run.conducted:
        raise RunError(f"{run.path}: nothing runs '{name}' now; penstock resume goes on with it")
    return float(run.ask("stop" if stop else "drain", patience)["seconds"])


def resume(
    folder: str | Path,
    plan: str | Path | None = None,
    *,
    master: str | None = None,
    seconds: float = 30.0,
    warm_up: float = 10.0,
    models: api.ModelsLike = None,
    given: Pipeline | None = None,
    dead_letters: str | Path | None = None,
    show: Callable[[str, str], None] | None = None,
    patience: float = PATIENCE_SECONDS,
    heard: Callable[[PlacedRun, float], None] = lambda _run, _seconds: None,
    tell: Callable[[str], None] = lambda _text: None,
) -> float | PlacedResult:
    """Go on with a run, onto another plan where one is given.

    A run that waits, drained, is told to: the answer is the seconds until a tuple came to its end. A run that nobody
    conducts (it was stopped, or its process died) is conducted from here, for `seconds`: the answer is its result.
    """
    from penstock.spark.requests import RunFolder  # noqa: PLC0415 - psutil belongs to the extra

    run = RunFolder(Path(folder))
    said = run.description
    other = None if plan is None else Path(plan)
    if run.conducted:
        return float(run.ask("resume", patience, other)["seconds"])
    load = Load(tuple((float(s), float(r)) for s, r in said["load"]["spells"]), said["load"]["repeats"])
    job = prepare_placed(
        run.path / said["plan"], load, models, said["routing"], given, said["segmenter"], said["segments"]
    )
    letters = None if dead_letters is None else Path(dead_letters)
    wishes = Wishes(seconds, warm_up, models, given, letters, show, heard, tell)
    return _conducted(job, run.path, master or said["master"], wishes, said["generation"], said["emitted"], other)


def _fresh_folder(pipeline: str) -> Path:
    """Beside the working directory's other files: runs/NAME-TIME."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in pipeline)
    return Path("runs") / f"{safe}-{stamp()}"
