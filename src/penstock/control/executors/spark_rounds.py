"""Rounds of a deployment on Spark: plans from costs and nodes, nodes from a provider, runs on them, and readings.

Every round executes the plan that was made for it: its threads on its nodes. Rounds of a placed pipeline share one
Spark application. Nodes that were acquired are released however the rounds end.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, PenstockError, RefusedError
from penstock.base.files import temporary_folder
from penstock.base.state_folder import state_folder
from penstock.cluster.contract import OWN, open_cluster
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, Cluster, Node
from penstock.control.contracts import NodeOffer, ProviderSetting
from penstock.control.deployment import (
    DeployPlan,
    DeployTarget,
    InterruptedRoundError,
    OperatorReading,
    RoundReading,
    costlier,
)
from penstock.control.node_providers import LeftNodes, NodePool, deferred_interrupts
from penstock.control.registry import DEFAULT_PROVIDER, NODE_PROVIDERS
from penstock.dataflow.pipeline import gains
from penstock.inputs.finders import plan_at, planner_of
from penstock.modelling.library import ModelLibrary, demands_of, placed_demands, unmeasured_operators
from penstock.modelling.machine import this_machine
from penstock.modelling.model import Model
from penstock.planning.allocation.contract import ProfileAllocator
from penstock.planning.prediction.placement import spread_of
from penstock.planning.registry import ALLOCATORS
from penstock.planning.sharing.contract import equal_nodes
from penstock.report.listener import Listener, Progress
from penstock.report.task_profiles import named_profiles, task_profiles
from penstock.runs.config import PLACED, RunConfig
from penstock.runs.engine import ENGINES
from penstock.runs.folder import RunFolder
from penstock.runs.foreground import await_with_interrupts
from penstock.runs.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.dataflow.pipeline import Gain, Pipeline
    from penstock.modelling.task_profile import TaskProfile
    from penstock.planning.plan import Plan
    from penstock.report.figures import Figures
    from penstock.report.report import Report
    from penstock.report.result import PlacedResult, RunResult
    from penstock.spark.session.process_tree import MachineUsage

ABOVE = 1.2
"""Times the target that is offered: the highest stable point shows."""
NEAR = 0.95
"""Part of the target from which on the target itself is tried, whose queues are not those of an overload."""
READINGS = 10
"""Readings of a round, of equal length."""
SAMPLE_EVERY = 20
"""Rows of which P-Deployer measures one."""


# Plans: pure, from costs and nodes.


@dataclass
class RoundPlanning:
    """Makes the plans of one deployment."""

    pipeline: Pipeline
    library: ModelLibrary
    target: DeployTarget
    allocator: str
    placer: str
    nodes: Callable[[int], Cluster]
    """The nodes to plan for before there are any."""
    called: str = "PIPELINE"
    """The pipeline as the user named it."""
    there: Cluster | None = None
    """Nodes that have come; more are expected to be like the last of them."""
    gains: Mapping[str, Gain] = field(init=False)
    _measured: dict[str, TaskProfile] = field(default_factory=dict)
    _measured_at: dict[str, float] = field(default_factory=dict)
    """The costs that the measured profiles have in them."""
    _is_fresh: bool = False

    def __post_init__(self) -> None:
        self.gains = gains(self.pipeline)
        self._takes_profiles = isinstance(ALLOCATORS.create(self.allocator), ProfileAllocator)

    def check(self) -> None:
        """Raise `BadInputError` if an operator was not measured: no plan with it can be called met."""
        if names := unmeasured_operators(self.pipeline, demands_of(self.pipeline, self.library)):
            raise BadInputError(
                f"operator '{names[0]}' was not measured, and a plan with it is never called met: penstock profile "
                f"{self.called} -o models.json measures it, then --models models.json"
            )

    def learn(self, profiles: Mapping[str, TaskProfile]) -> None:
        """Plan by measured profiles from now on, if the allocator plans by profiles."""
        if self._takes_profiles:
            self._measured.update(profiles)
            self._is_fresh = bool(self._measured)

    def library_at(self, costs: Mapping[str, float]) -> ModelLibrary:
        """Return models and profiles at these costs. Profiles that were measured have the costs of their round."""
        if self._is_fresh:
            self._measured_at, self._is_fresh = dict(costs), False
        library = costlier(self.library, self.pipeline, costs)
        if not self._measured:
            return library

        def name_of(operator: str) -> str:
            return self.library.name_for(self.pipeline.name, operator, self.pipeline.operators[operator].model)

        named = named_profiles(self._measured, name_of, this_machine())
        known = {name_of(operator) for operator in self._measured}
        since = {name: cost / self._measured_at.get(name, 1.0) for name, cost in costs.items()}
        measured = costlier(ModelLibrary.of((), named), self.pipeline, since)
        models = {name: model for name, model in library.models.items() if name not in known}
        return replace(library, models=models).updated_with(measured)

    def cluster(self, count: int) -> Cluster:
        """Return `count` nodes: those that have come, then others like the last of them."""
        if self.there is None or not self.there.nodes:
            return self.nodes(count)
        have = self.there.nodes[:count]
        last = self.there.nodes[-1]
        more = tuple(replace(last, name=f"{last.name}+{number}") for number in range(1, count - len(have) + 1))
        return replace(self.there, nodes=(*have, *more), excluded={})

    def plan_for(self, costs: Mapping[str, float]) -> DeployPlan:
        """Return a plan on the smallest number of nodes that holds it; above the budget if none within it does."""
        library = self.library_at(costs)
        refused: RefusedError | None = None
        for count in range(1, self.target.budget + 1):
            try:
                return self.plan_on(self.cluster(count), library)
            except RefusedError as error:
                refused = error
        if refused is None:
            raise RuntimeError("no number of nodes was tried")
        needed = self._needed(library)
        if needed > self.target.budget:
            return DeployPlan(needed, {}, {})
        raise refused

    def plan_on(self, cluster: Cluster, library: ModelLibrary) -> DeployPlan:
        planner = planner_of(self.pipeline, models=library, cluster=cluster)
        plan = plan_at(planner, self.target.rate, allocator=self.allocator, placer=self.placer)
        threads = {operator.name: operator.threads for operator in plan.allocation.operators}
        return DeployPlan(len(cluster.nodes), threads, self._capacity(plan, library), plan)

    def _needed(self, library: ModelLibrary) -> int:
        """Return the nodes that the slots of the allocation fill, wherever they are."""
        first = self.cluster(1)
        planner = planner_of(self.pipeline, models=library, cluster=first)
        slots = planner.allocate(self.target.rate, ALLOCATORS.create(self.allocator)).slots_with_sources_and_sinks
        return max(self.target.budget + 1, -(-slots // first.nodes[0].slots))

    def _capacity(self, plan: Plan, library: ModelLibrary) -> dict[str, float]:
        """sum over slots of I(t_k)"""
        by_slot = plan.placement.by_slot()
        capacity = {}
        for name, model in placed_demands(demands_of(self.pipeline, library)).items():
            if isinstance(model, Model):
                capacity[name] = sum(model.rate(count) for count in spread_of(by_slot, name).values())
        return capacity


def operator_readings(
    pipeline: Pipeline,
    report: Report,
    threads: Mapping[str, int],
    seconds: float,
    processes: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, OperatorReading]:
    """`processes`: by operator, the cores of the fullest process it runs in, and its own part of that."""
    if report.seconds <= 0:
        return {}
    return {
        name: OperatorReading(
            seen.received / seconds,
            min(1.0, seen.busy_seconds / (report.seconds * max(1, threads.get(name, 1)))),
            threads.get(name, 1),
            pipeline.operators[name].kind,
            *(processes or {}).get(name, (0.0, 0.0)),
        )
        for name, seen in report.operators.items()
        if name in pipeline.operators
    }


# Rounds on Spark: nodes from a provider, and runs on them.


@dataclass(frozen=True, slots=True)
class DeploymentSite:
    """The nodes that rounds use: those of a cluster, or of one on this machine that is started for them."""

    master: str | None
    secret_file: Path | None
    provider: str | None
    node_size: str | None
    node_slots: int

    @property
    def is_own(self) -> bool:
        return self.master is None


@contextmanager
def _terminated_by_interrupt() -> Iterator[None]:
    """Inside the block SIGTERM raises KeyboardInterrupt, so that nodes are released."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _MachineListener(Listener):
    """Passes everything on, and reads the CPU of this machine when the warm-up of a run and the run are over."""

    def __init__(self, listener: Listener, warm_up: float) -> None:
        self._listener, self._warm_up = listener, warm_up
        self.first: MachineUsage | None = None
        self.last: MachineUsage | None = None

    def on_message(self, text: str) -> None:
        self._listener.on_message(text)

    def on_progress(self, progress: Progress) -> None:
        self._listener.on_progress(progress)

    def on_figures(self, figures: Figures) -> None:
        from penstock.spark.session.process_tree import MachineUsage  # noqa: PLC0415 - psutil belongs to the extra

        if figures.seconds >= self._warm_up:
            now = MachineUsage.now()
            self.first, self.last = self.first or now, now
        self._listener.on_figures(figures)

    @property
    def own_share(self) -> float | None:
        """Part of the machine that this process and all below it used; None: too short to say."""
        from penstock.spark.session.process_tree import cpu_between  # noqa: PLC0415 - psutil belongs to the extra

        if self.first is None or self.last is None or self.last.there <= self.first.there:
            return None
        return cpu_between(self.first.own, self.last.own) / (self.last.there - self.first.there)


class SparkRounds:
    """Acquires nodes for plans, runs the plans, and reads figures. Ends everything it started with the block."""

    def __init__(
        self,
        planning: RoundPlanning,
        site: DeploymentSite,
        seconds: tuple[float, float],
        engine: str,
        listener: Listener,
    ) -> None:
        self.planning, self.site, self.engine, self.listener = planning, site, engine, listener
        self.stabilise, self.read = seconds
        self.segmenter: str | None = None
        self.sample_every: int | None = SAMPLE_EVERY
        self._stack = ExitStack()
        self._pool: NodePool | None = None
        self._master = site.master
        self._session: Any = None
        self._folder = Path()
        self._runs = 0
        self._offer = self._checked_offer()
        if self._offer is not None:
            usual = self._offer
            planning.nodes = lambda count: equal_nodes(count, usual.slots, "")

    def _checked_offer(self) -> NodeOffer | None:
        """Return what one more node is; raise if the provider's options are wrong. Nothing is acquired."""
        site = self.site
        if site.is_own:
            if site.provider not in {None, DEFAULT_PROVIDER}:
                raise BadInputError(
                    f"provider '{site.provider}': name the cluster that its nodes join (master=, --master)"
                )
            if site.node_size is not None:
                raise BadInputError("node_size=: nodes of this machine have one size")
            return None
        if site.master is not None and site.master.startswith("local"):
            raise BadInputError(f"master '{site.master}': a plan is executed on the nodes of a cluster, not embedded")
        if site.provider is None:
            return None
        name, _, options = site.provider.partition(":")
        offer: NodeOffer | None = NODE_PROVIDERS.load(name).offer(options)
        return offer

    def __enter__(self) -> SparkRounds:
        self._stack.enter_context(_terminated_by_interrupt())
        self._folder = self._stack.enter_context(temporary_folder("deploy"))
        return self

    def __exit__(self, *_: object) -> None:
        # a second Ctrl-C must not leave nodes behind
        with deferred_interrupts():
            self._stack.close()

    # Nodes.

    def _open(self, count: int) -> NodePool:
        """Return the nodes of this deployment; on a cluster of its own they are started with it."""
        if self._pool is not None:
            return self._pool
        site = self.site
        if site.is_own:
            from penstock.spark.clusters.local.lifecycle import running_cluster  # noqa: PLC0415 - psutil is the extra's

            home = self._folder / "cluster"
            self.listener.on_progress(Progress(f"starting {count} Workers of this machine"))
            self._stack.enter_context(running_cluster(count, site.node_slots, folder=home))
            self._master = f"{OWN}:{home}"
        manager = open_cluster(self._master, secret_file=site.secret_file)
        pool = NodePool(manager, size=site.node_size)
        self._pool = pool
        wanted = DEFAULT_PROVIDER if site.is_own else site.provider
        if wanted is not None:
            name, _, options = wanted.partition(":")
            setting = ProviderSetting(self._folder / "cluster") if site.is_own else self._setting(manager.master)
            pool.provider = NODE_PROVIDERS.load(name).make(options, setting)
            if not site.is_own:
                self._guard(pool, name, options, setting)
        return pool

    def _setting(self, address: str) -> ProviderSetting:
        """Return what a provider must know of the user's cluster: its folder, or the address that nodes join."""
        if str(self._master).partition(":")[0] == OWN:
            return ProviderSetting(state_folder(str(self._master).partition(":")[2] or None), address)
        return ProviderSetting(Path(), address)

    def _guard(self, pool: NodePool, name: str, options: str, setting: ProviderSetting) -> None:
        """Have nodes released whatever ends this process."""
        from penstock.spark.clusters.local.guard import guarded  # noqa: PLC0415 - loads only where nodes are acquired

        file = self._folder / "nodes.json"
        left = LeftNodes(provider=name, options=options, master=setting.master, folder=str(setting.folder))
        pool.left = (file, left)
        command = [sys.executable, "-P", "-m", "penstock.control.node_providers", str(file)]
        self._stack.enter_context(guarded(command))
        self._stack.callback(self._release)

    def _release(self) -> None:
        if self._pool is not None:
            for trouble in self._pool.close():
                self.listener.on_message(trouble)

    def provide(self, costs: Mapping[str, float], plan: DeployPlan) -> DeployPlan:
        """Acquire the nodes of a plan, and return a plan on as few of those that came as possible.

        If they do not hold it, acquire more, up to the budget.
        """
        pool = self._open(plan.nodes)
        for trouble in pool.drop(pool.dead(pool.acquired)):
            self.listener.on_message(trouble)
        library = self.planning.library_at(costs)
        wanted, refused = plan.nodes, None
        while wanted <= self.planning.target.budget:
            there = pool.acquire(wanted)
            self.planning.there = there
            for count in range(1, len(there.nodes) + 1):
                try:
                    return self.planning.plan_on(there.only(range(count)), library)
                except RefusedError as error:
                    refused = error
            smaller = _smaller(there.nodes[-1], plan)
            self.listener.on_message(f"{len(there.nodes)} nodes do not hold the plan{smaller}: {refused}")
            wanted = len(there.nodes) + 1
        return DeployPlan(wanted, {}, {})

    # Runs.

    def execute(self, plan: DeployPlan) -> RoundReading:
        """Offer more than the target, so that the highest stable point shows. Then offer the target itself if the
        latency under overload is not that of the target."""
        target = self.planning.target
        used = sorted({slot.node for slot in plan.made.placement.by_slot()})
        try:
            reading = self._measured(plan, ABOVE * target.rate)
            is_slow = target.latency_ms is not None and (reading.latency_ms or 0.0) > target.latency_ms
            if reading.throughput >= NEAR * target.rate and (not reading.stable or is_slow):
                settled = self._measured(plan, target.rate)
                reading = replace(reading, latency_ms=settled.latency_ms)
                if settled.stable:
                    reading = replace(reading, throughput=max(reading.throughput, settled.throughput))
        except InterruptedRoundError:
            raise
        except PenstockError:
            lost = self._lost(used)
            if not lost:
                raise
            reading = RoundReading(0.0, None, stable=False, operators={}, lost_nodes=tuple(lost))
        lost = self._lost(used)
        if lost:
            return replace(reading, lost_nodes=tuple(lost))
        self.planning.learn(reading.profiles)
        return reading

    def _lost(self, nodes: list[str]) -> list[str]:
        return [] if self._pool is None else self._pool.dead(nodes)

    def _measured(self, plan: DeployPlan, rate: float) -> RoundReading:
        listener = _MachineListener(self.listener, self.stabilise)
        result = self._run(plan, rate, listener)
        if result.interrupted:
            raise InterruptedRoundError("interrupted")
        report, pipeline = result.report, self.planning.pipeline
        if self.engine == PLACED:
            threads, processes = plan.threads, _processes(result, report)
        else:
            threads, processes = dict.fromkeys(pipeline.operators, result.slots), {}
        node_cpu = _node_cpu(report, plan.made.cluster)
        profiles = task_profiles(report)
        used = sum(report.processes.values())
        shares_machine = self._pool is not None and self._pool.manager.is_on_this_machine
        return RoundReading(
            report.sustained_rate,
            report.latency_ms.get("p95"),
            report.stable,
            operator_readings(pipeline, report, threads, report.seconds, processes),
            node_cpu,
            profiles,
            report.offered_rate,
            listener.own_share if shares_machine else None,
            report.sampling_cores / used if used and self.sample_every is not None else None,
            _readings(report, self.stabilise),
        )

    def _run(self, plan: DeployPlan, rate: float, listener: Listener) -> PlacedResult | RunResult:
        """Run a plan for the time of a round. Rounds of a placed pipeline share one Spark application, whose executors
        are warm."""
        self._runs += 1
        config = RunConfig(
            engine=self.engine,
            rate=rate,
            seconds=self.stabilise + self.read,
            warm_up=self.stabilise,
            master=self._master,
            secret_file=None if self.site.secret_file is None else str(self.site.secret_file),
            models=plan.made.library,
            folder=str(self._folder / f"run-{self._runs}"),
        )
        runnable: Any = plan.made
        if self.engine == PLACED:
            config = replace(config, segmenter=self.segmenter, sample_every=self.sample_every)
            if self._session is None:
                from penstock.engines.placed.engine import placed_session  # noqa: PLC0415 - Spark loads when used

                session = placed_session(self.planning.pipeline.name, config)
                self._session = self._stack.enter_context(session)
                if self._pool is not None:
                    self._pool.own.add(str(self._session.sparkContext.applicationId))
            config = replace(config, session=self._session)
        else:
            config = replace(config, slots=len(plan.made.placement.by_slot()))
            runnable = self.planning.pipeline
        engine = ENGINES.create(self.engine)
        prepared = engine.prepare(config.for_engine(self.engine), runnable, listener, given=self.planning.pipeline)
        result: PlacedResult | RunResult = await_with_interrupts(
            Run(engine, prepared, RunFolder(config.folder or ""), listener)
        )
        return result


def _smaller(node: Node, plan: DeployPlan) -> str:
    """Return a remark if nodes have fewer slots than were planned for."""
    planned = 0 if plan.made is None else max(it.slots for it in plan.made.cluster.nodes)
    return f", they have {node.slots} slots where {planned} were planned for" if node.slots < planned else ""


def _processes(result: Any, report: Report) -> dict[str, tuple[float, float]]:
    """Return, for each operator, the cores of its fullest process and its own part of them by its time at work."""
    fullest: dict[str, tuple[float, float]] = {}
    busy = {name: seen.busy_seconds for name, seen in report.operators.items()}
    for place in result.places:
        cores = report.processes.get(f"{'+'.join(place.operators)}@{place.planned}", 0.0)
        whole = sum(busy.get(name, 0.0) for name in place.operators)
        for name in place.operators:
            part = cores * busy.get(name, 0.0) / whole if whole else 0.0
            if cores >= fullest.get(name, (0.0, 0.0))[0]:
                fullest[name] = (cores, part)
    return fullest


def _node_cpu(report: Report, cluster: Cluster) -> dict[str, float]:
    """Part of each node's CPU that its slots used."""
    used: dict[str, float] = {}
    for slot, (cpu, _) in report.slots.items():
        used[slot.node] = used.get(slot.node, 0.0) + cpu
    cores = {node.name: node.capacity[CPU] / CPU_POINTS_PER_SLOT for node in cluster.nodes}
    return {node: cpu / cores[node] for node, cpu in used.items() if cores.get(node)}


def _readings(report: Report, warm_up: float) -> tuple[float, ...]:
    """Return the mean rates of `READINGS` equal parts of the time after the warm-up, as far as there are batches."""
    moments = [moment for moment in report.history if moment.seconds >= warm_up]
    if not moments:
        return ()
    each = -(-len(moments) // READINGS)
    parts = [moments[start : start + each] for start in range(0, len(moments), each)]
    return tuple(sum(moment.rate for moment in part) / len(part) for part in parts)
