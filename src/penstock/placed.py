"""Plans on a cluster, as functions: `penstock.run(plan, master=...)`, `penstock.drain(...)`, `penstock.resume(...)`."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import api
from penstock.clock import Stopwatch, stamp
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.pipeline import Grouping, Pipeline
from penstock.dataflow.rates import gains
from penstock.errors import BadInputError
from penstock.files import write_text
from penstock.modelling.fit import misfits
from penstock.modelling.machine import this_machine
from penstock.modelling.model import Model
from penstock.planning.file import SavedPlan, read_plan
from penstock.prediction.machine import machine_rate
from penstock.prediction.rate import Routing
from penstock.report.placed_result import PlacedResult
from penstock.running import demands_to_run, logic_of, runnable
from penstock.workloads.operators import services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.prediction.rate import Demands
    from penstock.running import RunnableLike
    from penstock.spark.bundles import Bundle
    from penstock.spark.cluster_state import RunningCluster
    from penstock.spark.placed_run import PlacedRun, PlacedSetup

TICKET_SECONDS = 1.0
"""Tickets hold at most so much work."""
FIRST_ROWS = 100
"""Rows of the first tickets of a bundle nobody has a model of."""
ASSUMED_BATCH_CPU_SECONDS = 0.1
"""CPU the engine needs for a micro-batch where no model says."""
EXECUTOR_MEMORY_MB = 512
"""Of the Java process of a slot; its Python workers hold the data."""
SHORTEST_INTERVAL_MS = 200
INTERVAL_MS_PER_BUNDLE = 60
"""Micro-batches are what the driver runs out of first: the more bundles, the less often each is looked after."""
PATIENCE_SECONDS = 180.0


def interval_ms(bundles: int) -> int:
    return max(SHORTEST_INTERVAL_MS, INTERVAL_MS_PER_BUNDLE * bundles)


@dataclass(frozen=True)
class PlacedJob:
    """A plan made ready to run: everything about it that can be known, and be wrong, before Spark is started."""

    pipeline: Pipeline
    plan: SavedPlan
    threads: Mapping[Slot, Mapping[str, int]]
    demands: Demands
    load: Load
    routing: Routing

    def able(self, operator: str, threads: int) -> float:
        demand = self.demands[operator]
        return demand.rate(threads) if isinstance(demand, Model) else float(threads)

    def bundles(self, generation: int) -> list[Bundle]:
        from penstock.spark.bundles import make_bundles  # noqa: PLC0415 - Spark loads only when it is used

        return make_bundles(self.pipeline, logic_of(self.pipeline), self.threads, self.load, self.able, generation)

    def most_rows(self, bundle: Bundle) -> int:
        """As many as the models say are worth a ticket's seconds."""
        rates = [
            demand.rate(step.threads)
            for step in bundle.steps
            if isinstance(demand := self.demands[step.operator], Model)
        ]
        if bundle.load is not None:
            return max(FIRST_ROWS, int(self.load.peak_rate * TICKET_SECONDS))
        return int(min(rates) * TICKET_SECONDS) if rates else FIRST_ROWS

    def slots_rate(self) -> float | None:
        rates = self.plan.prediction.get("rate", {})
        found = rates.get("slot_aware" if self.routing is Routing.SLOT_AWARE else "declared")
        return float(found) if isinstance(found, int | float) else None

    def machine_rate(self, cores: int, bundles: int) -> float | None:
        models = [demand for demand in self.demands.values() if isinstance(demand, Model)]
        if not models:
            return None
        told = [one.measured_on.batch_cpu_ms for one in models if one.measured_on.batch_cpu_ms is not None]
        each = sum(told) / len(told) / 1000 if told else ASSUMED_BATCH_CPU_SECONDS
        return machine_rate(gains(self.pipeline), self.demands, self.threads, cores, bundles / TICKET_SECONDS, each)

    def predicted_slots(self) -> dict[Slot, tuple[float, float]]:
        rows = self.plan.prediction.get("slots", [])
        return {Slot(row["node"], row["slot"]): (row["cpu"], row["memory"]) for row in rows}


def prepare_placed(
    plan: RunnableLike,
    rate: float | str | Load | None,
    models: api.ModelsLike,
    routing: Routing | str | None,
    given: Pipeline | None = None,
) -> PlacedJob:
    """`given`: the pipeline itself, where its code exists only in Python."""
    found, saved = runnable(plan)
    if saved is None:
        raise BadInputError("placed execution needs a plan: penstock plan PIPELINE --rate R -o PLAN.json")
    pipeline = given or found
    wanted = Routing(routing or saved.prediction.get("routing") or Routing.SHUFFLE)
    if wanted is Routing.SLOT_AWARE:
        streams = [
            one.model_copy(update={"grouping": Grouping.SLOT_AWARE}) if one.grouping is Grouping.SHUFFLE else one
            for one in pipeline.streams
        ]
        pipeline = Pipeline.of(pipeline.name, pipeline.operators.values(), streams)
    offered = saved.rate if rate is None else rate
    load = offered if isinstance(offered, Load) else parse_load(str(offered))
    logic_of(pipeline)
    return PlacedJob(
        pipeline, saved, saved.threads_by_slot(), demands_to_run(pipeline, api.models(models)), load, wanted
    )


def check_nodes(job: PlacedJob, cluster: RunningCluster) -> None:
    """The cluster must have the nodes and slots the plan names."""
    offered = {node.name: node.slots for node in cluster.nodes}
    for slot in job.threads:
        if slot.number >= offered.get(slot.node, 0):
            has = f"has {offered[slot.node]} slots" if slot.node in offered else "is not there"
            raise BadInputError(
                f"the plan uses slot {slot}, but node '{slot.node}' of the cluster {has}; plan for this cluster: "
                f"penstock plan PIPELINE --rate R --cluster {cluster.folder / 'cluster.yaml'} -o PLAN.json"
            )


def find_master(master: str | None) -> tuple[str, RunningCluster | None]:
    """The address, and the cluster on this machine it belongs to; None asks for the one of `penstock cluster up`."""
    from penstock.errors import ClusterError  # noqa: PLC0415
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
    models: api.ModelsLike = None,
    routing: Routing | str | None = None,
    folder: str | Path | None = None,
    given: Pipeline | None = None,
    heard: Callable[[PlacedRun, float], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> PlacedResult:
    """Run a plan with every operator on the slot the plan names, on a standalone cluster.

    `master` is its address; None means the one of `penstock cluster up`. `folder` is where the run keeps its channels
    and what it needs to be resumed: on several machines, one they all share.
    """
    job = prepare_placed(plan, rate, models, routing, given)
    place = Path(folder) if folder is not None else _fresh_folder(job.pipeline.name)
    if (place / "run.json").exists():
        raise BadInputError(f"{place}: a run was started here before; resume it (penstock resume), or name another")
    return _run(job, place, master, 0, {}, seconds, warm_up, models, given, heard, tell)


def _run(
    job: PlacedJob,
    place: Path,
    master: str | None,
    generation: int,
    emitted: Mapping[str, int],
    seconds: float,
    warm_up: float,
    models: api.ModelsLike,
    given: Pipeline | None,
    heard: Callable[[PlacedRun, float], None] | None,
    tell: Callable[[str], None] | None,
) -> PlacedResult:
    if not 0 <= warm_up < seconds:
        raise BadInputError(f"seconds: expected more than the warm-up of {warm_up:g}, found {seconds:g}")
    say = tell or (lambda _: None)
    address, cluster = find_master(master)
    if cluster is not None:
        check_nodes(job, cluster)
    needed = {operator.model or name for name, operator in job.pipeline.operators.items()}
    for warning in misfits([one for one in job.demands.values() if isinstance(one, Model)], this_machine()):
        say(warning)
    with services(needed, given=os.environ) as environment, _session(address, cluster, job.pipeline.name) as session:
        from penstock.spark.conducting import conduct  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.spark.interrupts import Interrupt, interrupts  # noqa: PLC0415
        from penstock.spark.placed_run import PlacedRun  # noqa: PLC0415
        from penstock.spark.requests import RunFolder  # noqa: PLC0415

        run_folder = RunFolder(place)
        run_folder.create()
        state = _Describing(run_folder, job, address, generation, emitted)
        state.write()
        bundles = job.bundles(generation)
        setup = _setup(job, place, environment, cluster, len(bundles))
        started = Stopwatch()
        run = PlacedRun(session, setup, bundles, emitted, tell)
        interrupt = Interrupt()

        def onto(path: Path) -> Sequence[Bundle]:
            other = prepare_placed(path, job.load, models, job.routing, given)
            if cluster is not None:
                check_nodes(other, cluster)
            if set(other.pipeline.operators) != set(job.pipeline.operators):
                raise BadInputError(f"{path}: a plan for other operators than those of '{job.pipeline.name}'")
            state.next(other, run.dispatcher.emitted)
            return other.bundles(state.generation)

        with interrupts(interrupt):
            run_folder.sign()
            try:
                say(f"starting {len(bundles)} bundles on {len(job.threads)} slots")
                run.start()
                start_seconds = started.seconds()
                run.begin()
                done = conduct(
                    run, run_folder, seconds, onto, lambda: interrupt.asked, heard or (lambda _run, _seconds: None)
                )
            finally:
                run.stop()
                run_folder.sign_off()
        report = run.report(done.held, warm_up, done.backlog)
    shared = cluster is not None
    return PlacedResult(
        job.pipeline.name,
        str(place),
        str(job.routing),
        job.slots_rate(),
        job.machine_rate(os.cpu_count() or 1, len(bundles)) if shared else None,
        job.predicted_slots(),
        report,
        tuple(run.places[name] for name in sorted(run.places)),
        done.changes,
        start_seconds,
        done.drain_seconds,
        interrupt.asked,
    )


def _setup(
    job: PlacedJob, place: Path, environment: Mapping[str, str], cluster: RunningCluster | None, bundles: int
) -> PlacedSetup:
    from penstock.spark.placed_run import PlacedSetup  # noqa: PLC0415 - Spark loads only when it is used

    nodes = {node.name: node.slots for node in (cluster.nodes if cluster is not None else job.plan.nodes)}
    return PlacedSetup(
        place.absolute(),
        job.load,
        environment,
        job.most_rows,
        TICKET_SECONDS,
        interval_ms(bundles),
        EXECUTOR_MEMORY_MB,
        None if cluster is None else cluster.web_url,
        nodes,
    )


class _Describing:
    """What a folder says about its run, so that another process can go on with it."""

    def __init__(self, folder: Any, job: PlacedJob, master: str, generation: int, emitted: Mapping[str, int]) -> None:
        self._folder = folder
        self._job = job
        self._master = master
        self._emitted = dict(emitted)
        self.generation = generation

    def write(self) -> None:
        import json  # noqa: PLC0415

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
    _ = run.description
    if not run.conducted:
        raise RunError(f"{run.path}: the run is not running; penstock resume goes on with it")
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
    patience: float = PATIENCE_SECONDS,
    heard: Callable[[PlacedRun, float], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> float | PlacedResult:
    """Go on with a run, onto another plan where one is given.

    A run that waits, drained, is told to: the answer is the seconds until its first tuple. A run nobody conducts (it
    was stopped, or its process died) is conducted from here, for `seconds`: the answer is its result.
    """
    from penstock.spark.requests import RunFolder  # noqa: PLC0415 - psutil belongs to the extra

    run = RunFolder(Path(folder))
    said = run.description
    if run.conducted:
        return float(run.ask("resume", patience, None if plan is None else Path(plan))["seconds"])
    load = Load(tuple((float(s), float(r)) for s, r in said["load"]["spells"]), said["load"]["repeats"])
    job = prepare_placed(run.path / said["plan"], load, models, said["routing"], given)
    arguments = (master or said["master"], said["generation"], said["emitted"], seconds, warm_up, models, given)
    if plan is None:
        return _run(job, run.path, *arguments, heard, tell)
    raise BadInputError(f"{run.path}: what is in flight must be finished first: resume without a plan, then drain")


def _fresh_folder(pipeline: str) -> Path:
    """Beside the working directory's other files: runs/NAME-TIME."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in pipeline)
    return Path("runs") / f"{safe}-{stamp()}"


__all__ = ["PlacedJob", "drain", "interval_ms", "prepare_placed", "read_plan", "resume", "run_placed"]
