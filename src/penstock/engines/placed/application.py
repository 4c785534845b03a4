"""Run a plan as a Spark application: its folder, bundles, nodes and result."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.base.clock import Stopwatch, now, stamp
from penstock.base.errors import BadInputError, ClusterError
from penstock.cluster.cores import cores_here
from penstock.connectors.topic_address import absolute_place
from penstock.engines.fused.preparation import FIGURES_SECONDS
from penstock.engines.placed.preparation import PlacedJob, check_nodes, cluster_of, prepare_placed
from penstock.engines.placed.replacement import on_many_slots, on_slots_left, with_threads
from penstock.inputs.finders import logic_of
from penstock.planning.files import read_plan
from penstock.report.epochs import latencies_of, operators_of, slots_of, summarise_epochs
from penstock.report.figures import Figures, by_source, flows, gone_notes, waiting_notes
from penstock.report.report import arrived_rate
from penstock.report.result import PlacedResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.resource import ResourceProfile

    from penstock.cluster.contract import ClusterManager as Manager
    from penstock.cluster.contract import ExecutorSize, Holder
    from penstock.cluster.topology import Cluster, Slot
    from penstock.connectors.commit import Commit
    from penstock.connectors.file_source import FileFeed
    from penstock.dataflow.load import Load
    from penstock.engines.placed.bundle_plan import Code, LaidOut
    from penstock.engines.placed.conductor import Conductor, ConductorSetting, Publisher
    from penstock.engines.placed.flow.layout import Layout
    from penstock.engines.placed.launchers import SparkLauncher
    from penstock.engines.placed.monitoring import EpochObserver, NodeWatch
    from penstock.engines.placed.run_control import Conducted, RunControl
    from penstock.planning.files import SavedPlan
    from penstock.report.epochs import EpochObservation
    from penstock.report.listener import Listener
    from penstock.report.report import Report
    from penstock.runs.config import RunConfig
    from penstock.runs.folder import RunFolder


# The cluster a placed run is on, as it is now: nodes come and go while the run lives.


class PlacedCluster:
    """`manager` answers about nodes. One that cannot tell them leaves what the plan says of its nodes."""

    def __init__(self, manager: Manager, plan: SavedPlan) -> None:
        known = manager.topology() if manager.pins else None
        self.manager = manager if known is not None else None
        """None if the manager does not tell its slots."""
        self.machines: Cluster = known or cluster_of(plan)

    @property
    def offered(self) -> dict[str, int]:
        """Slots by node, as last seen."""
        return {node.name: node.slots for node in self.machines.nodes}

    def nodes(self) -> Collection[str]:
        """Return the nodes of now; if nobody answers, those that are known."""
        known = None if self.manager is None else self.manager.topology()
        if known is not None:
            self.machines = known
        return self.offered

    def slots(self) -> list[Slot]:
        self.nodes()
        return list(self.machines.slots)

    def held_by_others(self, application: str) -> Mapping[Slot, Holder]:
        held = {} if self.manager is None else self.manager.holdings() or {}
        return {slot: holder for slot, holder in held.items() if holder.application != application}

    def check(self, job: PlacedJob, application: str) -> None:
        """Raise if a node or slot of a plan is not there, or is held by another application."""
        if self.manager is None:
            return
        self.nodes()
        check_nodes(job, self.machines)
        held = self.held_by_others(application)
        taken = [f"{slot} ({held[slot]})" for slot in sorted(job.threads) if slot in held]
        if taken:
            raise ClusterError(f"slots of the plan are held by others: {', '.join(taken)}")


# Code of a placed run: code and schemas of its operators, the places of its sinks, the topics that it reads.


def placed_code(
    application: PlacedApplication, session: Any, launcher: Any, feed: Any, environment: Mapping[str, str]
) -> Code:
    """Of the operators, with what they send; of sinks and sources that are topics, with the names of their run."""
    from penstock.engines.fused.sources.readers import struct_of  # noqa: PLC0415 - Spark loads only when it is used
    from penstock.engines.placed.bundle.keyed_segment import plain_schema  # noqa: PLC0415
    from penstock.engines.placed.bundle_plan import Code, whole_pipeline  # noqa: PLC0415
    from penstock.engines.placed.endpoints import named_sinks, topic_shares  # noqa: PLC0415
    from penstock.engines.placed.monitoring import learn_schemas  # noqa: PLC0415
    from penstock.spark.internals.plans import arrow_of  # noqa: PLC0415

    pipeline = application.job.pipeline
    logic = {**logic_of(pipeline), **feed.logic}
    declared = {name: own.schema for name, own in logic.items() if own.schema is not None}
    known = {
        name: plain_schema(words) or arrow_of(struct_of(words, f"operator '{name}'"))
        for name, words in declared.items()
    }
    sinks = named_sinks(application.sinks, application.folder.description.run, application.folder.place)
    topics = topic_shares(pipeline)
    services = tuple(environment.items())
    code = Code(pipeline, logic, known, sinks, application.shown, services, audit=not topics, topics=topics)
    code = replace(code, sample_every=application.config.sample_every)
    whole = whole_pipeline(code)
    slot = next(iter(application.threads))
    learned = learn_schemas(session, launcher, slot, whole.steps, whole.sources, feed.tuples)
    return replace(code, schemas={**learned, **known})


# Figures of a placed run while it runs, for its listener and its handle.


RECENT_SECONDS = 5.0
"""What a listener hears of a run is what it did in so many seconds."""


def offered_between(load: Load, began: float, flowing: float, held: float, warm_up: float) -> float:
    """Tuples/s that were due in the time the report is about."""
    first, last = max(0.0, flowing + warm_up - began), held - began
    return load.rate_between(first, last) if last > first else load.mean_rate


def figures_hearer(
    listener: Listener, seconds: float | None, observer: EpochObserver, control: RunControl
) -> Callable[[float], None]:
    """Hears often how long a run has run; tells the listener and the handle once a second where it stands."""
    since = Stopwatch()

    def hear(ran: float) -> None:
        nonlocal since
        if observer.epochs and observer.epochs[-1].tuples:
            control.last_tuple = observer.epochs[-1].finished
        control.shares = observer.shares
        if since.seconds() >= FIGURES_SECONDS:
            since = Stopwatch()
            figures = _figures(observer, ran, seconds)
            if observer.epochs:
                control.figures = figures
            listener.on_figures(figures)

    return hear


def _figures(observer: EpochObserver, ran: float, seconds: float | None) -> Figures:
    epochs = [epoch for epoch in observer.epochs if epoch.finished > now() - RECENT_SECONDS]
    operators = operators_of(epochs)
    return Figures(
        seconds=ran,
        of_seconds=seconds,
        offered=_offered(observer, epochs),
        sustained=sum(epoch.tuples for epoch in epochs) / RECENT_SECONDS,
        backlog=observer.backlog,
        latency_ms=latencies_of(epochs),
        busy={name: seen.busy_seconds / RECENT_SECONDS for name, seen in operators.items()},
        slots={str(slot): use for slot, use in slots_of(epochs).items()},
        dead=sum(seen.dead for seen in operators.values()),
        operators=flows(operators.items(), RECENT_SECONDS),
        on_slots=flows(
            (((name, str(slot)), seen) for epoch in epochs for (name, slot), seen in epoch.on_slots.items()),
            RECENT_SECONDS,
        ),
        lag=by_source(observer.lag),
    )


def _offered(observer: EpochObserver, epochs: Sequence[EpochObservation]) -> float:
    """Of topics what came: what was taken in, and what more waits than before. Else what was due."""
    began = observer.conductor.began
    if not began:
        return 0.0
    if not observer.lag:
        return offered_between(observer.load, began, now() - RECENT_SECONDS, now(), 0.0)
    if not epochs:
        return 0.0
    first, last = epochs[0], epochs[-1]
    taken = sum(epoch.tuples for epoch in epochs[1:])
    return arrived_rate(taken, first.backlog, last.backlog, last.finished - first.finished)


def from_topics(report: Report, lag: Mapping[str, int], gone: Mapping[str, int]) -> Report:
    """Where sources are topics: what waits and what is gone, both by source/topic/partition, is said."""
    waiting = by_source(lag)
    return replace(report, lag=waiting, notes=(*report.notes, *waiting_notes(waiting), *gone_notes(by_source(gone))))


SLOWER_THAN_FIRST = 2.0
"""A slot that takes longer to start anew than so many times all did at first is taken for one that does not."""
MOST_NOTES = 100
LEAVE_SECONDS = 0.5
"""How often a run that keeps no executors looks for some it does not need."""


class Upkeep:
    """The work of a run between two turns of its conductor. `launcher`: executors that no bundle is on are ended."""

    def __init__(
        self,
        conductor: Conductor,
        observer: EpochObserver,
        feed: FileFeed,
        figures: Callable[[float], None],
        launcher: SparkLauncher | None,
    ) -> None:
        self._conductor, self._observer, self._feed, self._figures = conductor, observer, feed, figures
        self._launcher = launcher
        self._since_left = Stopwatch()

    def __call__(self, ran: float) -> None:
        """`ran`: the seconds that the run has run."""
        from penstock.engines.placed.monitoring import leave_unused  # noqa: PLC0415 - Spark loads only when it is used

        self._observer.look()
        self._feed.look()
        if self._feed.tuples is not None:
            self._conductor.more_tuples(self._feed.tuples)
        self._figures(ran)
        if self._launcher is not None and self._since_left.seconds() > LEAVE_SECONDS:
            self._since_left = Stopwatch()
            leave_unused(self._conductor, self._launcher)


class PlacedApplication:
    """A run whose parts are known, before and while it runs."""

    def __init__(
        self,
        job: PlacedJob,
        folder: RunFolder,
        manager: Manager,
        control: RunControl,
        listener: Listener,
        *,
        is_led: bool = False,
    ) -> None:
        """`is_led`: a controller orders slots and plans. Slots that the run leaves are free for others; otherwise it
        keeps their executors, so that it comes back to them fast."""
        from penstock.engines.placed.endpoints import check_sources, make_folders, sinks_of  # noqa: PLC0415
        from penstock.engines.placed.wire import read_identity  # noqa: PLC0415

        self.job, self.config, self.address = job, job.config, manager.master
        self.listener, self._is_led = listener, is_led
        self.cluster = PlacedCluster(manager, job.plan)
        self.control = control
        self.folder = folder
        self.threads: Mapping[Slot, Mapping[str, int]] = job.threads
        check_sources(job.pipeline)
        self.sinks, self.shown = sinks_of(
            job.pipeline,
            None if self.config.dead_letters is None else Path(self.config.dead_letters),
            at_least_once=self.config.at_least_once,
        )
        self.identity = None if self.config.tls is None else read_identity(Path(self.config.tls))
        make_folders(self.sinks)
        self._plans: dict[str, tuple[PlacedJob, LaidOut]] = {}
        """By the name a commit has for it: a plan of this run, and where it says that everything is."""
        self._conductor: Conductor | None = None
        self._application = ""
        self._notes: list[str] = []

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self.listener.on_message(text)

    def taken(self, *, continues: bool) -> Commit:
        """Conduct the run from this process, and return the commit from which it continues."""
        return self.folder.take_over(None if continues else self._describe())

    def _describe(self) -> str:
        from penstock.runs.description import RunDescription  # noqa: PLC0415

        job, config = self.job, self.config
        resolved = replace(
            config,
            rate=job.load,
            master=self.address,
            session=None,
            routing=str(job.routing),
            segmenter=job.segmenter,
            dead_letters=None if config.dead_letters is None else absolute_place(config.dead_letters),
            tls=None if config.tls is None else str(Path(config.tls).absolute()),
        )
        name = f"{self.folder.name}-{uuid.uuid4().hex[:8]}"
        self.folder.describe(RunDescription(run=name, pipeline=job.pipeline.name, config=resolved, started=stamp()))
        return self._keep_plan(job)

    def _keep_plan(self, job: PlacedJob) -> str:
        return self.folder.add_plan(job.plan.model_dump(mode="json"), [list(segment) for segment in job.segments])

    def find_slots(self, *, continues: bool) -> None:
        """The plan's slots must be there and free; a run that goes on leaves those of nodes that are not there."""
        from penstock.engines.placed.monitoring import check_free, dead_nodes  # noqa: PLC0415 - Spark, when it is used

        session = self.config.session
        application = "" if session is None else str(session.sparkContext.applicationId)
        cluster = self.cluster
        if cluster.manager is None:
            return
        moves = continues and not self._is_led
        dead = dead_nodes(cluster.manager, cluster.offered) if moves else set[str]()
        if any(slot.node in dead for slot in self.job.threads):
            self.listener.on_message(f"nodes that are not there: {', '.join(sorted(dead))}")
            usable = [slot for slot in cluster.slots() if slot.node not in dead]
            left = on_slots_left(self.job, cluster.machines, usable)
            self.listener.on_message(left.note)
            self.threads = left.threads
        check_free(cluster.manager, self.threads.keys(), application)

    def run(self, session: Any, commit: Commit, environment: Mapping[str, str], onto: Path | None) -> PlacedResult:
        from penstock.connectors.file_source import FileFeed, indexes_of  # noqa: PLC0415 - pyarrow is Spark's
        from penstock.connectors.staged_sinks import publish, sweep  # noqa: PLC0415
        from penstock.engines.placed.conductor import Conductor, unsent_note  # noqa: PLC0415
        from penstock.engines.placed.endpoints import ToldCommits  # noqa: PLC0415
        from penstock.engines.placed.launchers import SparkLauncher  # noqa: PLC0415
        from penstock.engines.placed.monitoring import EpochObserver  # noqa: PLC0415
        from penstock.engines.placed.run_control import Conducting, Plans  # noqa: PLC0415

        job, config = self.job, self.config
        started, began = Stopwatch(), now()
        indexes = indexes_of(job.pipeline)
        feed = FileFeed(self.folder.path if indexes else Path(), indexes)
        self._application = str(session.sparkContext.applicationId)
        launcher = SparkLauncher(session, job.memory_mb, self.folder.description.run)
        launcher.warm(self.threads)
        publish(commit.outputs)
        code = placed_code(self, session, launcher, feed, environment)
        for place in {sink.place for sink in code.sinks.values()}:
            sweep(place, commit.run, commit.conductor, {output.staged for output in commit.outputs})
        home = job.laid_out(code, commit.plan, self.threads)
        self._plans[commit.plan] = (job, job.laid_out(code, commit.plan))
        groups = ToldCommits(job.pipeline)
        publishers = self._publishers(session, launcher, code)
        setting = replace(self._setting(code, feed.tuples, publishers), committed=groups.committed)
        conductor = self._conductor = Conductor(setting, launcher, home, commit)
        samples = config.sample_every is not None
        observer = EpochObserver(conductor, job.load, job.pipeline.sources, samples=samples)
        figures = figures_hearer(self.listener, config.run_seconds, observer, self.control)
        upkeep = Upkeep(conductor, observer, feed, figures, launcher if self._is_led else None)
        watch = self._watch(conductor)
        try:
            self.listener.on_message(
                f"starting {len(home.codes)} bundles on {len(self.threads)} slots; folder {self.folder.place}"
            )
            plans = Plans(
                lambda path, places: self._by_file(path, places, code), lambda slots: self._by_slots(slots, code)
            )
            conducting = Conducting(conductor, self.control, plans, upkeep)
            conducting.start()
            conductor.be_patient(SLOWER_THAN_FIRST * started.seconds())
            if onto is not None:
                conducting.change(onto)
            done = conducting.run(config.run_seconds)
        finally:
            if watch is not None:
                watch.stop()
            conductor.close()
            self._notes += groups.close()
        unsent = unsent_note(publishers, self.folder.place)
        self._notes += [] if unsent is None else [unsent]
        observer.look()
        return self._result(conductor, observer, done, began, unsent=unsent is not None)

    def _result(
        self, conductor: Conductor, observer: EpochObserver, done: Conducted, began: float, *, unsent: bool
    ) -> PlacedResult:
        """Return what came of the run. `began` is when this process began to prepare it."""
        from penstock.engines.placed.monitoring import places_of  # noqa: PLC0415 - Spark loads only when it is used

        job, warm_up = self.job, self.config.warm_up_seconds
        flowing = conductor.flowing_since or done.held
        due = offered_between(job.load, conductor.began, flowing, done.held, warm_up)
        report = summarise_epochs(
            observer.epochs,
            flowing,
            done.held,
            warm_up,
            None if observer.lag else due,
            observer.audited(job.pipeline),
            observer.backlog_at(done.held),
            tuple(self._notes[-MOST_NOTES:]),
        )
        # nodes of `cluster up` are processes of this machine, but where each has a network of its own
        shared = self.cluster.manager is not None and self.cluster.manager.is_on_this_machine
        setup = job.setup(cores_here() if shared else None)
        modelled = bool(setup.models)
        return PlacedResult(
            job.pipeline.name,
            self.folder.place,
            str(job.routing),
            job.slots_rate(),
            setup.engine_rate() if modelled else None,
            setup.forecast(job.load.peak_rate),
            from_topics(report, observer.lag, observer.gone),
            places_of(conductor),
            done.changes,
            (conductor.first_ever or now()) - began,
            done.drain_seconds,
            hop_ms={name: 1000 * (observer.hops.quantile(part) or 0.0) for name, part in (("p50", 0.5), ("p99", 0.99))},
            load=job.load,
            unsent=unsent,
        )

    # Other layouts of the run.

    def _by_file(self, path: Path, places: Mapping[Slot, ExecutorSize] | None, code: Code) -> LaidOut:
        """Another plan for the same pipeline, with the executors of `places`."""
        job, config = self.job, self._as_it_runs()
        segmenter = read_plan(path).segmenter or config.segmenter
        other = prepare_placed(path, replace(config, segmenter=segmenter), job.given)
        other = replace(other, sizes={} if places is None else dict(places))
        if set(other.pipeline.operators) != set(job.pipeline.operators):
            raise BadInputError(f"{path}: a plan for other operators than those of '{job.pipeline.name}'")
        self.cluster.check(other, self._application)
        return self._known(other, code)

    def _as_it_runs(self) -> RunConfig:
        job = self.job
        return replace(self.config, rate=job.load, routing=str(job.routing), segmenter=job.segmenter)

    def _by_slots(self, slots: int, code: Code) -> LaidOut:
        """The plan of now on so many slots: those it has, then others that are free."""
        if slots < 1:
            raise BadInputError(f"slots: expected at least 1, found {slots}")
        job, layout = self._now()
        own = {bundle.slot for bundle in layout.bundles}
        held = self.cluster.held_by_others(self._application)
        usable = sorted(
            (slot for slot in self.cluster.slots() if slot not in held), key=lambda slot: (slot not in own, slot)
        )
        if len(usable) < slots:
            raise ClusterError(f"slots: {slots} asked, {len(usable)} are there and not held by others")
        planned = on_many_slots(job, self.cluster.machines, usable[:slots])
        self._note(planned.note)
        saved = with_threads(job.plan, planned.threads, self.cluster.machines)
        other = prepare_placed(saved, replace(self._as_it_runs(), models=job.library), job.pipeline)
        return self._known(other, code)

    def _known(self, other: PlacedJob, code: Code) -> LaidOut:
        name = self._keep_plan(other)
        laid_out = other.laid_out(code, name)
        self._plans[name] = (other, laid_out)
        return laid_out

    def _now(self) -> tuple[PlacedJob, Layout]:
        """The plan that counts now, and the layout that runs: the plan's own, or a refuge."""
        if self._conductor is None:
            raise RuntimeError("nothing runs yet")
        layout = self._conductor.run.layout
        return self._plans[layout.plan][0], layout

    # Nodes.

    def _watch(self, conductor: Conductor) -> NodeWatch | None:
        """Of the nodes, where the Master can be asked about them."""
        from penstock.engines.placed.flow.states import WantedState  # noqa: PLC0415
        from penstock.engines.placed.monitoring import NodeWatch  # noqa: PLC0415 - Spark loads only when it is used

        cluster = self.cluster
        if cluster.manager is None:
            return None

        def is_home(gone: Collection[str]) -> bool:
            """Whether the run is where its plan says; where it is not and can be, it is told to move back. One that is
            led never leaves its plan."""
            if self._is_led:
                return True
            layout = conductor.run.layout
            home = self._plans[layout.plan][1]
            if layout is home.layout or conductor.run.wanted is WantedState.END:
                return True
            slots = {bundle.slot for bundle in home.layout.bundles}
            held = cluster.held_by_others(self._application)
            free = not slots & held.keys() and not any(slot.node in gone for slot in slots)
            if free and not conductor.run.changing:
                self._note("the plan's nodes are back: moving back to where it says")
                conductor.change(home)
            return False

        made = NodeWatch(conductor, cluster.manager, cluster.nodes, is_home, self._note)
        made.start()
        return made

    def _publishers(self, session: Any, launcher: SparkLauncher, code: Code) -> tuple[Publisher, ...]:
        """Of sinks that are no files: they get rows when their epoch is committed."""
        from penstock.connectors.staged_sinks import TopicPublisher  # noqa: PLC0415
        from penstock.engines.placed.endpoints import (  # noqa: PLC0415
            FramePublisher,
            commits_by_epoch,
            frame_writers,
            frames_place,
        )

        topics = TopicPublisher(sink.topic for sink in code.sinks.values() if sink.topic is not None)
        frames = [name for name, sink in self.sinks.items() if sink.frame_of]
        if not frames:
            return (topics,)
        pipeline = self.job.pipeline
        for name in frames:
            if not commits_by_epoch(pipeline.operators[name]):
                self._note(f"sink '{name}': at least once; after a death an epoch may be there twice")
        writers = frame_writers(session, pipeline, frames, self.folder.description.run)

        def profile() -> ResourceProfile:
            """Return that of a slot of now: an executor on a slot that was left would take it from others."""
            slots = [bundle.slot for bundle in self._conductor.run.layout.bundles] if self._conductor else []
            return launcher.present_profile(slots[0] if slots else next(iter(self.threads)))

        return topics, FramePublisher(session, writers, frames_place(self.folder.place), profile)

    def _setting(self, code: Code, limit: int | None, publishers: Sequence[Publisher]) -> ConductorSetting:
        from penstock.engines.placed.conductor import ConductorSetting  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.spark.session.cluster import own_address  # noqa: PLC0415

        described, parts = self.folder.description, urlsplit(self.address)

        def begun(moment: float) -> None:
            self.folder.describe(described.model_copy(update={"began": moment}))

        def refuge(unusable: Collection[Slot]) -> LaidOut:
            """On nodes that lost a slot only where there are no others."""
            job, layout = self._now()
            doubtful, held = {slot.node for slot in unusable}, self.cluster.held_by_others(self._application)
            left = [slot for slot in self.cluster.slots() if slot not in unusable and slot not in held]
            usable = [slot for slot in left if slot.node not in doubtful] or left
            left_over = on_slots_left(job, self.cluster.machines, usable)
            self._note(left_over.note)
            return job.laid_out(code, layout.plan, left_over.threads)

        return ConductorSetting(
            described.run,
            self.folder.checkpoint,
            own_address(parts.hostname or "127.0.0.1", parts.port or 7077),
            self.job.load,
            described.began,
            None if self._is_led else refuge,
            self._note,
            self.listener.on_tuple,
            begun,
            limit=limit,
            publishers=publishers,
            identity=self.identity,
        )
