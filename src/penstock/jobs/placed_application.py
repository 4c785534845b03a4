"""A plan as a Spark application: its folder, its bundles, the nodes they are on, and what came of it."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.clock import Stopwatch, now
from penstock.cluster.cores import cores_here
from penstock.connectors.log.address import absolute_place
from penstock.errors import BadInputError, ClusterError
from penstock.jobs.placed import PlacedJob, prepare_placed
from penstock.jobs.placed_cluster import PlacedCluster
from penstock.jobs.placed_code import placed_code
from penstock.jobs.placed_figures import figures_hearer, from_topics, offered_between
from penstock.jobs.placed_replacing import on_many_slots, on_slots_left, with_threads
from penstock.report.epochs import summarise_epochs
from penstock.report.placed_result import PlacedResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline
    from penstock.flow.commit import Commit
    from penstock.flow.layout import Layout
    from penstock.jobs.find import ModelsLike
    from penstock.report.listener import Listener
    from penstock.spark.placed.committing import Publisher
    from penstock.spark.placed.conducting import RunControl
    from penstock.spark.placed.conductor import Conductor
    from penstock.spark.placed.execution import NodeWatch
    from penstock.spark.placed.launcher import SparkLauncher
    from penstock.spark.placed.laying_out import Code, LaidOut
    from penstock.spark.placed.setting import ConductorSetting
    from penstock.spark.standalone.state import RunningCluster

EXECUTOR_MEMORY_MB = 512
"""Of the Java process of a slot; its Python workers hold the data."""
SLOWER_THAN_FIRST = 2.0
"""A slot that takes longer to start anew than so many times all did at first is taken for one that does not."""
MOST_NOTES = 100
LEAVE_SECONDS = 0.5
"""How often a run that keeps no executors looks for some it does not need."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is to be conducted. `given`: the pipeline itself, where its code exists only in Python. Without
    `seconds` it goes on until it is told to end."""

    seconds: float | None
    warm_up: float
    models: ModelsLike
    given: Pipeline | None
    dead_letters: Path | None
    listener: Listener
    secret_file: Path | None = None
    session: Any = None
    """A session on the cluster that is there already, and its executors with it; it is left as it was."""
    keep_executors: bool = True
    """Of slots the run has left, so that it comes back to them fast; else they are free for others."""
    at_least_once: bool = False
    """Sinks that cannot commit by epoch are written all the same: after a death an epoch may be there twice."""
    tls: Path | None = None
    """A certificate and its key: the run's processes talk to each other by TLS."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of Spark's, for a session of the run's own."""

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 <= self.warm_up < self.seconds:
            raise BadInputError(f"seconds: expected more than the warm-up of {self.warm_up:g}, found {self.seconds:g}")


class PlacedApplication:
    """A run whose parts are known, before and while it runs."""

    def __init__(
        self,
        job: PlacedJob,
        place: str | Path,
        options: RunOptions,
        address: str,
        cluster: RunningCluster | None,
        control: RunControl,
    ) -> None:
        from penstock.spark.placed.endpoints import check_sources, make_folders, sinks_of  # noqa: PLC0415
        from penstock.spark.placed.run_folder import RunFolder  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.spark.placed.tls import read_identity  # noqa: PLC0415

        self.job, self.options, self.address = job, options, address
        self.cluster = PlacedCluster(cluster, job.plan)
        self.control = control
        self.folder = RunFolder(place)
        self.threads: Mapping[Slot, Mapping[str, int]] = job.threads
        check_sources(job.pipeline)
        self.sinks, self.shown = sinks_of(job.pipeline, options.dead_letters, at_least_once=options.at_least_once)
        self.identity = None if options.tls is None else read_identity(options.tls)
        make_folders(self.sinks)
        self._plans: dict[str, tuple[PlacedJob, LaidOut]] = {}
        """By the name a commit has for it: a plan of this run, and where it says that everything is."""
        self._conductor: Conductor | None = None
        self._application = ""

    @contextmanager
    def taken(self, *, going_on: bool) -> Iterator[Commit]:
        """This process conducts the run; nobody else does."""
        self.folder.create()
        plan = None if going_on else self._describe()
        commit = self.folder.take(plan)
        try:
            yield commit
        finally:
            self.folder.give_back()

    def _describe(self) -> str:
        from penstock.spark.placed.run_folder import VERSION, RunDescription  # noqa: PLC0415

        job, letters = self.job, self.options.dead_letters
        self.folder.describe(
            RunDescription(
                version=VERSION,
                run=f"{self.folder.name}-{uuid.uuid4().hex[:8]}",
                pipeline=job.pipeline.name,
                master=self.address,
                load=job.load.document(),
                began=0.0,
                routing=str(job.routing),
                segmenter=job.segmenter,
                dead_letters=None if letters is None else absolute_place(str(letters)),
                at_least_once=self.options.at_least_once,
                tls=None if self.options.tls is None else str(self.options.tls.absolute()),
                settings=dict(self.options.settings),
            )
        )
        return self._keep_plan(job)

    def _keep_plan(self, job: PlacedJob) -> str:
        return self.folder.add_plan(job.plan.model_dump(mode="json"), [list(segment) for segment in job.segments])

    def find_slots(self, *, going_on: bool) -> None:
        """The plan's slots must be there and free; a run that goes on leaves those of nodes that are not there."""
        from penstock.spark.placed.execution import check_free, dead_nodes  # noqa: PLC0415 - Spark, when it is used

        session = self.options.session
        application = "" if session is None else str(session.sparkContext.applicationId)
        cluster = self.cluster
        if cluster.running is None:
            return
        web_url = cluster.running.web_url
        dead = dead_nodes(web_url, cluster.offered) if going_on else set[str]()
        if any(slot.node in dead for slot in self.job.threads):
            self.options.listener.on_message(f"nodes that are not there: {', '.join(sorted(dead))}")
            usable = [slot for slot in cluster.slots() if slot.node not in dead]
            left = on_slots_left(self.job, cluster.machines, usable)
            self.options.listener.on_message(left.note)
            self.threads = left.threads
        check_free(web_url, self.threads.keys(), cluster.offered, application)

    def run(  # noqa: PLR0915 - the whole of a run, in order
        self, session: Any, commit: Commit, environment: Mapping[str, str], onto: Path | None
    ) -> PlacedResult:
        from penstock.connectors.file_feed import FileFeed  # noqa: PLC0415
        from penstock.connectors.file_index import indexes_of  # noqa: PLC0415
        from penstock.connectors.staged_sinks import publish, sweep  # noqa: PLC0415
        from penstock.spark.placed.committing import unsent_note  # noqa: PLC0415
        from penstock.spark.placed.conducting import Conducting, Plans  # noqa: PLC0415
        from penstock.spark.placed.conductor import Conductor  # noqa: PLC0415
        from penstock.spark.placed.execution import EpochObserver, leave_unused, places_of  # noqa: PLC0415
        from penstock.spark.placed.launcher import SparkLauncher  # noqa: PLC0415
        from penstock.spark.placed.told_commits import ToldCommits  # noqa: PLC0415
        from penstock.spark.session.interrupts import Interrupt, interrupts  # noqa: PLC0415

        job, options, notes = self.job, self.options, list[str]()

        def note(text: str) -> None:
            notes.append(text)
            options.listener.on_message(text)

        started, began, interrupt = Stopwatch(), now(), Interrupt()
        indexes = indexes_of(job.pipeline)
        feed = FileFeed(self.folder.path if indexes else Path(), indexes)
        self._application = str(session.sparkContext.applicationId)
        launcher = SparkLauncher(session, EXECUTOR_MEMORY_MB, self.folder.description.run)
        launcher.warm(self.threads)
        publish(commit.outputs)
        code = placed_code(self, session, launcher, feed, environment)
        for place in {sink.place for sink in code.sinks.values()}:
            sweep(place, commit.run, commit.conductor, {output.staged for output in commit.outputs})
        home = job.laid_out(code, commit.plan, self.threads)
        self._plans[commit.plan] = (job, job.laid_out(code, commit.plan))
        groups = ToldCommits(job.pipeline)
        publishers = self._publishers(session, launcher, code, note)
        setting = self._setting(code, note, feed.tuples, publishers)
        setting = replace(setting, committed=groups.committed)
        conductor = self._conductor = Conductor(setting, launcher, home, commit)
        plans = Plans(lambda path: self._by_file(path, code), lambda slots: self._by_slots(slots, code, note))
        observer = EpochObserver(conductor, job.load, job.pipeline.sources)
        figures = figures_hearer(options.listener, options.seconds, observer, self.control)

        left = Stopwatch()

        def look(ran: float) -> None:
            nonlocal left
            observer.look()
            feed.look()
            if feed.tuples is not None:
                conductor.more_tuples(feed.tuples)
            figures(ran)
            if not options.keep_executors and left.seconds() > LEAVE_SECONDS:
                left = Stopwatch()
                leave_unused(conductor, launcher)

        watch = self._watch(conductor, note)
        with interrupts(interrupt):
            try:
                options.listener.on_message(
                    f"starting {len(home.codes)} bundles on {len(self.threads)} slots; folder {self.folder.place}"
                )
                conducting = Conducting(conductor, self.folder, self.control, plans, lambda: interrupt.asked, look)
                conducting.start()
                conductor.be_patient(SLOWER_THAN_FIRST * started.seconds())
                if onto is not None:
                    conducting.change(onto)
                done = conducting.run(options.seconds)
            finally:
                if watch is not None:
                    watch.stop()
                conductor.close()
                notes += groups.close()
        unsent = unsent_note(publishers, self.folder.place)
        notes += [] if unsent is None else [unsent]
        observer.look()
        flowing = conductor.flowing_since or done.held
        due = offered_between(job.load, conductor.began, flowing, done.held, options.warm_up)
        report = summarise_epochs(
            observer.epochs,
            flowing,
            done.held,
            options.warm_up,
            None if observer.lag else due,
            observer.audited(job.pipeline),
            observer.backlog_at(done.held),
            tuple(notes[-MOST_NOTES:]),
        )
        report = from_topics(report, observer.lag, observer.gone)
        # nodes of `cluster up` are processes of this machine, but where each has a network of its own
        shared = self.cluster.running is not None
        predicted = job.predicted(cores_here() if shared else None)
        return PlacedResult(
            job.pipeline.name,
            self.folder.place,
            str(job.routing),
            predicted.slots_rate,
            predicted.engine_rate,
            predicted.slots,
            report,
            places_of(conductor),
            done.changes,
            (conductor.first_ever or now()) - began,
            done.drain_seconds,
            interrupt.asked,
            predicted_latency_ms=predicted.latency_ms,
            hop_ms={name: 1000 * (observer.hops.quantile(part) or 0.0) for name, part in (("p50", 0.5), ("p99", 0.99))},
            load=job.load,
            unsent=unsent is not None,
        )

    # Other layouts of the run.

    def _by_file(self, path: Path, code: Code) -> LaidOut:
        """Another plan for the same pipeline."""
        job = self.job
        other = prepare_placed(path, job.load, self.options.models, job.routing, self.options.given, job.segmenter)
        if set(other.pipeline.operators) != set(job.pipeline.operators):
            raise BadInputError(f"{path}: a plan for other operators than those of '{job.pipeline.name}'")
        self.cluster.check(other, self._application)
        return self._known(other, code)

    def _by_slots(self, slots: int, code: Code, note: Callable[[str], None]) -> LaidOut:
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
        note(planned.note)
        saved = with_threads(job.plan, planned.threads, self.cluster.machines)
        other = prepare_placed(saved, job.load, job.library, job.routing, job.pipeline, job.segmenter)
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

    def _watch(self, conductor: Conductor, note: Callable[[str], None]) -> NodeWatch | None:
        """Of the nodes, where the Master can be asked about them."""
        from penstock.flow.states import WantedState  # noqa: PLC0415
        from penstock.spark.placed.execution import NodeWatch  # noqa: PLC0415 - Spark loads only when it is used

        cluster = self.cluster
        if cluster.running is None:
            return None

        def is_home(gone: Collection[str]) -> bool:
            """Whether the run is where its plan says; where it is not and can be, it is told to move back."""
            layout = conductor.run.layout
            home = self._plans[layout.plan][1]
            if layout is home.layout or conductor.run.wanted is WantedState.END:
                return True
            slots = {bundle.slot for bundle in home.layout.bundles}
            held = cluster.held_by_others(self._application)
            free = not slots & held.keys() and not any(slot.node in gone for slot in slots)
            if free and not conductor.run.changing:
                note("the plan's nodes are back: moving back to where it says")
                conductor.change(home)
            return False

        made = NodeWatch(conductor, cluster.running.web_url, cluster.nodes, is_home, note)
        made.start()
        return made

    def _publishers(
        self, session: Any, launcher: SparkLauncher, code: Code, note: Callable[[str], None]
    ) -> tuple[Publisher, ...]:
        """Of sinks that are no files: they get rows when their epoch is committed."""
        from penstock.connectors.log.publishing import TopicPublisher  # noqa: PLC0415
        from penstock.spark.placed.endpoints import frames_place  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.spark.placed.frame_sinks import FramePublisher, commits_by_epoch, frame_writers  # noqa: PLC0415

        topics = TopicPublisher(sink.topic for sink in code.sinks.values() if sink.topic is not None)
        frames = [name for name, sink in self.sinks.items() if sink.frame_of]
        if not frames:
            return (topics,)
        pipeline = self.job.pipeline
        for name in frames:
            if not commits_by_epoch(pipeline.operators[name]):
                note(f"sink '{name}': at least once; after a death an epoch may be there twice")
        writers = frame_writers(session, pipeline, frames, self.folder.description.run)
        profile = launcher.profile(next(iter(self.threads)))
        return topics, FramePublisher(session, writers, frames_place(self.folder.place), profile)

    def _setting(
        self, code: Code, note: Callable[[str], None], limit: int | None, publishers: Sequence[Publisher]
    ) -> ConductorSetting:
        from penstock.spark.placed.setting import ConductorSetting  # noqa: PLC0415 - Spark loads only when it is used
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
            note(left_over.note)
            return job.laid_out(code, layout.plan, left_over.threads)

        return ConductorSetting(
            described.run,
            self.folder.checkpoint,
            own_address(parts.hostname or "127.0.0.1", parts.port or 7077),
            self.job.load,
            described.began,
            refuge,
            note,
            self.options.listener.on_tuple,
            begun,
            limit=limit,
            publishers=publishers,
            identity=self.identity,
        )
