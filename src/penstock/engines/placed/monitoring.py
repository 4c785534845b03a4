"""A plan executed on a cluster: code made ready, bundles conducted, nodes watched, epochs turned into a report."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.clock import Stopwatch, now, pause
from penstock.base.errors import BadInputError, ClusterError
from penstock.cluster.books import slots_left
from penstock.cluster.slot_resources import slot_resource_name
from penstock.connectors.commit import of_sources, taken_in
from penstock.engines.placed.bundle.generation import VALUE_SCHEMA, shares_of
from penstock.engines.placed.bundle_plan import path_of
from penstock.engines.placed.flow.audit import audit, ways_of
from penstock.engines.placed.flow.states import FlowState
from penstock.report.epochs import EpochObservation, ProcessAccount, SlotReading, tasks_of
from penstock.report.report import Audit, OperatorObservation, TaskObservation
from penstock.report.result import BundlePlace
from penstock.runtime.account import Histogram
from penstock.runtime.schema_inference import sample_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import SparkSession

    from penstock.cluster.contract import ClusterManager as Manager
    from penstock.cluster.contract import NodeState
    from penstock.cluster.topology import Slot
    from penstock.dataflow.load import Load
    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.placed.conductor import Conductor, EpochDone, StagedPart
    from penstock.engines.placed.launchers import SparkLauncher
    from penstock.runtime.steps import Step

LOOK_SECONDS = 1.0
SAMPLES = 256
MOST_EPOCHS = 20_000
FREE_SECONDS = 6.0
"""Executors of a run that has just ended are gone by then."""


def learn_schemas(
    session: SparkSession,
    launcher: SparkLauncher,
    slot: Slot,
    steps: tuple[Step, ...],
    sources: Mapping[str, int],
    limit: int | None,
) -> dict[str, pa.Schema]:
    """What code sends where nothing says it: some tuples are put through the whole pipeline in a worker, first."""
    if all(step.logic is None or step.schema is not None for step in steps):
        return {}
    numbers = np.arange(SAMPLES if limit is None else min(limit, SAMPLES))
    places = list(sources.values())

    def in_worker(_items: Any) -> list[tuple[dict[str, bytes], dict[str, str]]]:
        tables = {place: pa.table({"value": numbers}, schema=VALUE_SCHEMA) for place in places}
        sampled = sample_steps(steps, tables)
        return [
            ({name: table.schema.serialize().to_pybytes() for name, table in sampled.tables.items()}, sampled.errors)
        ]

    job = session.sparkContext.parallelize([0], 1).mapPartitions(in_worker).withResources(launcher.profile(slot))
    schemas, errors = job.collect()[0]
    for step in steps:
        if step.logic is not None and step.schema is None and step.operator not in schemas:
            why = f": {errors[step.operator]}" if step.operator in errors else ""
            raise BadInputError(
                f"operator '{step.operator}': no sample tuple came through it{why}, so nothing says what it sends; "
                "give schema='NAME TYPE, ...'"
            )
    return {name: pa.ipc.read_schema(pa.py_buffer(data)) for name, data in schemas.items()}


def check_free(cluster: Manager, slots: Collection[Slot], application: str = "") -> None:
    """Every slot the plan uses must be free, by its number: Spark would wait for ever for one that somebody holds.
    `application` is that of the run itself, where it has one already."""
    watch = Stopwatch()
    while True:
        nodes, holdings = cluster.nodes(), cluster.holdings()
        if nodes is None or holdings is None:
            raise ClusterError(f"the manager at {cluster.master} does not answer; penstock cluster status")
        alive = {node.name: node for node in nodes if node.alive}
        others = {slot: holder for slot, holder in holdings.items() if holder.application != application}
        short = []
        for name in sorted({slot.node for slot in slots}):
            if name not in alive:
                raise ClusterError(f"node '{name}' is not there; penstock cluster status")
            needed = len({slot for slot in slots if slot.node == name})
            offered, left = alive[name].slots, slots_left(alive[name])
            own = sum(slot.node == name and slot not in others for slot in holdings)
            if offered is not None and left is not None and needed > left + own:
                short.append(f"{offered - left} of {offered} slots of '{name}' are held, the plan needs {needed}")
        taken = [f"{slot} by {others[slot]}" for slot in sorted(slots) if slot in others]
        if not taken and not short:
            return
        if watch.seconds() > FREE_SECONDS:
            if not taken:
                names = (
                    ", ".join(sorted({str(holder) for holder in others.values()})) or "an application that has ended"
                )
                raise ClusterError(f"slots are held by {names}: {'; '.join(short)}")
            raise ClusterError(f"slots of the plan are held: {', '.join(taken)}; plan for others, or wait")
        pause(0.3)


class NodeWatch(threading.Thread):
    """Asks the cluster manager about the nodes, again and again, and reports changes to the conductor.

    `nodes` says which there are now: some may have come since the run began. `is_home` is asked after a node came back,
    with those that are still gone, until it says that the run is where its plan wants it.
    """

    def __init__(
        self, conductor: Conductor, cluster: Manager, nodes: Callable[[], Collection[str]],
        is_home: Callable[[Collection[str]], bool], on_message: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._conductor, self._cluster, self._nodes = conductor, cluster, nodes
        self._is_home, self._on_message = is_home, on_message
        self._over = threading.Event()
        self._known: set[str] = set()
        """All there ever were: one that left the cluster is gone too."""
        self._gone: set[str] = set()
        self._away = False
        self._silent = False

    def run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.look(self._cluster.nodes())

    def look(self, answer: Sequence[NodeState] | None) -> None:
        if (answer is None) != self._silent:
            self._silent = answer is None
            self._on_message("the Master does not answer; what flows goes on" if self._silent else "the Master is back")
        if answer is None:
            return
        living = {node.name for node in answer if node.alive}
        self._known.update(self._nodes())
        for node in sorted(self._known):
            alive = node in living
            if not alive and node not in self._gone:
                self._gone.add(node)
                self._conductor.node_gone(node, "the Master has lost its Worker")
            elif alive and node in self._gone:
                self._gone.discard(node)
                self._conductor.node_back(node)
                self._away = True
        if self._away:
            self._away = not self._is_home(frozenset(self._gone))

    def stop(self) -> None:
        self._over.set()


@dataclass
class EpochObserver:
    """Turns epochs that committed into what reports are made of."""

    conductor: Conductor
    load: Load
    sources: tuple[str, ...]
    samples: bool = False
    """Whether bundles measure task profiles."""
    _offset: int = 0

    def __post_init__(self) -> None:
        self.epochs: list[EpochObservation] = []
        self._offset = self.offset
        self.hops = Histogram()
        self.made_several = False
        self._finished: float | None = None
        """When the last epoch did."""
        self.shares: Mapping[int, float] = {}
        """Of the last epoch that has any: see `Conductor.watch`."""
        self.lag: dict[str, int] = {}
        """Messages that waited when the last epoch ended, by source/topic/partition, where sources are topics."""
        self.gone: Counter[str] = Counter()
        """Messages that retention took unread, in all epochs that committed."""
        self._received: Counter[str] = Counter()
        self._filtered: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()
        """By operator, in all epochs that committed."""

    @property
    def offset(self) -> int:
        """Tuples of the load that are committed, of the furthest source."""
        return taken_in(of_sources(self.conductor.run.commit.offsets, self.sources))

    @property
    def _reads_topics(self) -> bool:
        """As the commit says: it has offsets by partition then."""
        return any(key not in self.sources for key in of_sources(self.conductor.run.commit.offsets, self.sources))

    @property
    def backlog(self) -> int:
        return self.backlog_at(now())

    def backlog_at(self, moment: float) -> int:
        """Tuples that were due then and are not committed; of topics, what waited in them last."""
        if self._reads_topics:
            return sum(self.lag.values())
        began = self.conductor.began
        due = self.load.due(max(0.0, moment - began)) if began else 0
        if self.conductor.limit is not None:
            due = min(due, self.conductor.limit)
        return max(0, due - self.offset)

    def look(self) -> None:
        while self.conductor.done:
            self.epochs.append(self._observed(self.conductor.done.popleft()))
        # a run of days reports its last hours
        del self.epochs[:-MOST_EPOCHS]

    def _observed(self, done: EpochDone) -> EpochObservation:
        operators: dict[str, list[float]] = {}
        latency = Histogram()
        used = self.conductor.used()
        slots: dict[Slot, SlotReading] = {}
        on_slots: dict[tuple[str, Slot], OperatorObservation] = {}
        for part in done.parts:
            for name, count in part.account.operators.items():
                row = operators.setdefault(name, [0.0] * 5)
                values = (count.rows_in, count.rows_out, count.filtered, count.dead, count.busy_seconds)
                on_slots[name, part.slot] = OperatorObservation(*values)
                self._received[name] += count.rows_in
                self._filtered[name] += count.filtered
                self._dead[name] += count.dead
                for position, value in enumerate(values):
                    row[position] += value
                self.made_several |= count.rows_out > count.rows_in > 0
            for histogram in part.account.latency.values():
                latency.merge(histogram)
            self.hops.merge(Histogram.of(part.hops))
            if part.bundle in used:
                java = self.conductor.places[part.bundle].java or 0
                reading = used[part.bundle]
                slots[part.slot] = SlotReading(java, reading["cpu_seconds"], reading["memory_mb"])
        counted = [entry for part in done.parts for entry in part.watched]
        self.shares = {**self.shares, **shares_of(counted, self.conductor.watched)}
        for part in done.parts:
            self.gone.update(part.gone)
        lag = {key: count for part in done.parts for key, count in part.lag.items()}
        # a bundle that has not looked yet reports no lag; partitions that left the commit are left out
        committed = self.conductor.run.commit.offsets
        self.lag = {key: count for key, count in {**self.lag, **lag}.items() if key in committed}
        topics = {key.partition("/")[0] for key in lag}
        taken = sum(int(row[0]) for name, row in operators.items() if name in topics)
        tuples, self._offset = taken + max(0, done.offset - self._offset), done.offset
        return EpochObservation(
            done.finished,
            tuples,
            self.backlog,
            {n: OperatorObservation(int(r[0]), int(r[1]), int(r[2]), int(r[3]), r[4]) for n, r in operators.items()},
            slots,
            latency.seconds(),
            on_slots,
            self._tasks(done),
            {part.bundle: part.account.cpu_seconds for part in done.parts},
            sum(part.account.sampling_seconds for part in done.parts),
        )

    def _tasks(self, done: EpochDone) -> dict[str, TaskObservation]:
        """Return what was measured for task profiles; nothing of the first epoch, whose length is not known."""
        before, self._finished = self._finished, done.finished
        tasks: dict[str, TaskObservation] = {}
        for part in done.parts if before is not None and self.samples else ():
            for name, task in tasks_of(_process_account(part, self.sources), done.finished - (before or 0.0)).items():
                tasks[name] = tasks[name].beside(task) if name in tasks else task
        return tasks

    def audited(self, pipeline: Pipeline) -> Audit:
        """Messages of topics have no numbers of ours: they are counted, and none is looked for."""
        committed = self.conductor.run.commit.offsets
        if self._reads_topics:
            return Audit(self._read(pipeline), None, None, self._dead.total(), self._filtered.total())
        offsets = {source: int(committed.get(source, 0)) for source in self.sources}
        ways = ways_of(pipeline, lambda stream: path_of(pipeline, stream))
        counts = audit(self.conductor.ids, offsets, ways, made_several=self.made_several)
        emitted = max(offsets.values(), default=0)
        return Audit(emitted, counts.lost, counts.duplicated, counts.dead, counts.filtered)

    def _read(self, pipeline: Pipeline) -> int:
        """Tuples of all sources: what the reader of most of each got, or all of its readers where it is divided among
        them."""
        taken = 0
        for source in self.sources:
            streams = pipeline.outputs(source)
            rows = [self._received[stream.receiver] for stream in streams]
            taken += sum(rows) if any(stream.weight != 1.0 for stream in streams) else max(rows, default=0)
        return taken


def _process_account(part: StagedPart, sources: Collection[str]) -> ProcessAccount:
    account = part.account
    return ProcessAccount(
        account.cpu_seconds,
        account.held_bytes / 2**20,
        account.sampling_seconds,
        {
            name: OperatorObservation(it.rows_in, it.rows_out, it.filtered, it.dead, it.busy_seconds)
            for name, it in account.operators.items()
        },
        {name: (it.sampled_rows, it.sampled_seconds, it.sampled_cpu_seconds) for name, it in account.operators.items()},
        {name: it.crossed for name, it in account.operators.items() if it.crossed},
        sum(it.rows_out for name, it in account.operators.items() if name in sources),
    )


def places_of(conductor: Conductor) -> tuple[BundlePlace, ...]:
    """Where the bundles of now run, as Spark and the operating system say."""
    places = []
    for bundle in conductor.run.layout.bundles:
        place = conductor.places.get(bundle.name)
        if place is None:
            continue
        places.append(
            BundlePlace(
                bundle.operators,
                bundle.slot,
                place.resources,
                place.executor,
                place.worker,
                place.java,
                obeyed=slot_resource_name(bundle.slot.node, bundle.slot.number) in place.resources,
            )
        )
    return tuple(places)


def dead_nodes(cluster: Manager, nodes: Collection[str]) -> set[str]:
    """Return the nodes that the cluster manager does not list as alive."""
    listed = cluster.nodes()
    if listed is None:
        raise ClusterError(f"the manager at {cluster.master} does not answer; penstock cluster status")
    return set(nodes) - {node.name for node in listed if node.alive}


def leave_unused(conductor: Conductor, launcher: SparkLauncher) -> None:
    """While tuples flow and no change is under way, executors no bundle is on are ended, and their slots are free."""
    run = conductor.run
    if conductor.first_tuple is None or run.changing or run.state is not FlowState.FLOWING:
        return
    places = [conductor.places.get(bundle.name) for bundle in run.layout.bundles]
    used = {place.executor for place in places if place is not None and place.executor is not None}
    if len(places) == sum(place is not None and place.executor is not None for place in places):
        kept = {bundle.slot for bundle in run.layout.bundles}
        launcher.release(sorted(launcher.executors() - used), kept)
