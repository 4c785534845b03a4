"""A placed run: bundles on their slots, watched. What dies is named and moved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from penstock.clock import Stopwatch, now, pause
from penstock.cluster.topology import Slot
from penstock.report.placed_result import BundlePlace
from penstock.report.report import OperatorObservation
from penstock.report.tickets import LATENCIES_OF_A_TICKET, TicketObservation, joined, summarise_tickets
from penstock.spark.bundle_queries import BundleQueries, Slots
from penstock.spark.calls import StoppedError
from penstock.spark.daemons import resource_name
from penstock.spark.dispatcher import Dispatcher
from penstock.spark.master_page import ALIVE, fetch_page
from penstock.spark.query import RunFailedError
from penstock.spark.query import reason as first_line
from penstock.spark.sinks import Ends, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock.dataflow.load import Load
    from penstock.report.report import Report
    from penstock.spark.bundles import Bundle
    from penstock.spark.channels import Manifest
    from penstock.spark.dispatcher import Finished
    from penstock.spark.file_feed import FileFeed

POLL_SECONDS = 0.02
LOOK_SECONDS = 1.0
"""Between looks at the health of queries and nodes."""
STUCK_SECONDS = 3.0
"""A bundle that has had a ticket for so long without working anything off is looked at."""
PATIENCE_SECONDS = 60.0
"""How long a run waits for its slots to start, and after a change for its first tuple."""
MOST_RESTARTS = 20
RESTART_PAUSE = 1.0
MOST_TICKETS = 20_000
"""Observations kept of a run: when there are more, older ones are put together two by two."""


@dataclass(frozen=True)
class PlacedSetup:
    """What a placed run needs besides its bundles."""

    folder: Path
    load: Load
    environment: Mapping[str, str]
    most_rows: Callable[[Bundle], int]
    ticket_seconds: float = 1.0
    interval_ms: int = 100
    executor_memory_mb: int | None = 512
    """None: on embedded Spark, where slots are not processes."""
    master_web: str | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Slots of every node that may be used when another dies."""
    feed: FileFeed | None = None
    """The files of sources that have some."""
    ends: Ends = field(default_factory=Ends)
    show: Callable[[str, str], None] | None = None
    """Hears of (sink, tuple as text) what reaches a console."""


class PlacedRun:
    def __init__(
        self,
        session: SparkSession,
        setup: PlacedSetup,
        bundles: Sequence[Bundle],
        emitted: Mapping[str, int] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._session = session
        self.setup = setup
        self.notes: list[str] = []
        self._tell = tell or (lambda _: None)
        self.tickets: list[TicketObservation] = []
        self._ends_seen = 0
        self.places: dict[str, BundlePlace] = {}
        self._used: dict[Slot, float] = {}
        self._restarts: dict[str, int] = {}
        self._restart_after: dict[str, float] = {}
        self._moved: dict[str, float] = {}
        """When bundles were moved."""
        self._given_up: set[Slot] = set()
        """Slots that nothing moved to has ever started on."""
        self._looked = Stopwatch()
        self._trouble: Stopwatch | None = None
        """Since the folder cannot be written."""
        self._begun: float | None = None
        self._sample = Sample(setup.show) if setup.show is not None else None
        self._slots = Slots(setup.executor_memory_mb)
        self._take(bundles, emitted)
        self._emitted_before = self.dispatcher.audit().emitted

    def _take(self, bundles: Sequence[Bundle], emitted: Mapping[str, int] | None) -> None:
        setup = self.setup
        setup.folder.mkdir(parents=True, exist_ok=True)
        feed = setup.feed
        self.dispatcher = Dispatcher(
            setup.folder,
            bundles,
            setup.most_rows,
            setup.ticket_seconds,
            emitted,
            there_are=lambda: None if feed is None else feed.tuples,
        )
        self.queries = BundleQueries(
            self._session, setup.folder, bundles, setup.environment, self._slots, setup.interval_ms, setup.ends
        )

    # The life of a run.

    def start(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Start every query and wait until every bundle has worked something off in its slot, or somebody stops it."""
        self.dispatcher.wake()
        self.queries.start()
        waited = Stopwatch()
        while self.dispatcher.asleep:
            if stopped():
                raise KeyboardInterrupt
            self.step()
            pause(POLL_SECONDS)
            if waited.seconds() > PATIENCE_SECONDS and not self._restarts:
                missing = self._names_of(self.dispatcher.asleep)
                raise RunFailedError(
                    f"no slot for {missing} within {PATIENCE_SECONDS:g} s; does the cluster have these nodes, and free "
                    "slots on them? penstock cluster status"
                )

    def begin(self) -> None:
        self.dispatcher.begin()
        self._begun = self._begun or now()

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        since = Stopwatch()
        while since.seconds() < seconds and not until():
            self.step()
            pause(POLL_SECONDS)

    def drain(self) -> float:
        """Hold the sources and wait until nothing is in flight; the seconds that took."""
        since = Stopwatch()
        self.dispatcher.hold()
        while not self.dispatcher.idle:
            self.step()
            pause(POLL_SECONDS)
        self.dispatcher.tidy()
        return since.seconds()

    def stop(self) -> None:
        self.queries.stop()
        self.dispatcher.tidy()
        self.setup.ends.sweep(self.setup.folder.name)

    def replace(self, bundles: Sequence[Bundle]) -> float:
        """After a drain: go on with other bundles on other slots; seconds until a tuple came to its end."""
        since = Stopwatch()
        emitted = self.dispatcher.emitted
        self.queries.stop()
        needed = {bundle.slot for bundle in bundles}
        gone = {place.executor for place in self.places.values() if place.executor and place.planned not in needed}
        self.queries.release(sorted(gone))
        self.places.clear()
        self._take(bundles, emitted)
        self.start()
        self.begin()
        self._until_something_ended(self._ends_seen)
        return since.seconds()

    def resume(self) -> float:
        """After a drain: go on where things are; seconds until the first tuple came to its end."""
        since = Stopwatch()
        self.begin()
        self._until_something_ended(self._ends_seen)
        return since.seconds()

    def _until_something_ended(self, before: int) -> None:
        """At a sink, in an aggregation, filtered, or as a dead letter; a load may have nothing to emit for long."""
        waited = Stopwatch()
        while waited.seconds() < PATIENCE_SECONDS and self._ends_seen == before:
            self.step()
            pause(POLL_SECONDS)

    def report(self, held: float, warm_up: float, backlog: int) -> Report:
        return summarise_tickets(
            self.tickets,
            self._begun or held,
            held,
            warm_up,
            self.setup.load.mean_rate,
            self.dispatcher.audit(),
            self._emitted_before,
            backlog,
            tuple(self.notes),
        )

    # One turn.

    def step(self) -> None:
        if self.setup.feed is not None:
            self.setup.feed.look()
        for finished in self.dispatcher.step():
            self._note(finished)
        self._mind_trouble(self.dispatcher.trouble)
        if self._looked.seconds() > LOOK_SECONDS:
            self._looked = Stopwatch()
            self._look()

    def _note(self, finished: Finished) -> None:
        manifest, bundle = finished.manifest, self.queries.bundles[finished.bundle.name]
        where = manifest.where
        if self._sample is not None:
            self._sample.take(manifest.shown)
        resources = where.get("resources", {})
        self.places[bundle.name] = BundlePlace(
            bundle.operators,
            bundle.slot,
            resources,
            where.get("executor-id"),
            where.get("worker-url"),
            where.get("java"),
            obeyed=not self._has_slots or resource_name(bundle.slot.node) in resources,
        )
        latencies = np.empty(0)
        ended = manifest.size if bundle.aggregate is not None else 0
        if finished.outcome is not None:
            delivered = finished.outcome.filter(pc.equal(finished.outcome["kind"], "delivered"))
            latencies = delivered["latency"].to_numpy()
            ended += pc.sum(pc.greater_equal(delivered["id"], 0)).as_py() or 0
        operators = {name: OperatorObservation(**count) for name, count in manifest.counts.items()}  # type: ignore[arg-type] # counts are whole
        self._ends_seen += ended + sum(seen.filtered + seen.dead for seen in operators.values())
        self.tickets.append(
            TicketObservation(
                finished=manifest.finished,
                slot=bundle.slot,
                process=(where.get("java") or 0) if self._has_slots else 0,
                slot_cpu_seconds=self._slot_cpu(bundle, manifest),
                slot_memory_mb=manifest.used["slot_memory_mb" if self._has_slots else "own_memory_mb"],
                operators=operators,
                ended=ended,
                latencies=latencies[:: 1 + len(latencies) // LATENCIES_OF_A_TICKET],
            )
        )
        if len(self.tickets) > MOST_TICKETS:
            self.tickets = joined(self.tickets)

    @property
    def _has_slots(self) -> bool:
        return self.setup.executor_memory_mb is not None

    def _slot_cpu(self, bundle: Bundle, manifest: Manifest) -> float:
        """CPU of the slot so far: of its processes, or where slots are none, of the tickets worked off there."""
        if self._has_slots:
            return manifest.used["slot_cpu_seconds"]
        total = self._used[bundle.slot] = self._used.get(bundle.slot, 0.0) + manifest.used["cpu_seconds"]
        return total

    # Health.

    def _mind_trouble(self, trouble: str | None) -> None:
        """A folder that cannot be written is waited for: nothing is lost meanwhile, only late."""
        if trouble is None:
            if self._trouble is not None:
                self._say(f"the folder can be written again, after {self._trouble.seconds():.1f} s")
            self._trouble = None
        elif self._trouble is None:
            self._trouble = Stopwatch()
            self._say(f"{trouble}; waiting until it can be written")
        elif self._trouble.seconds() > PATIENCE_SECONDS:
            raise RunFailedError(
                f"{trouble} for {PATIENCE_SECONDS:g} s; nothing is lost: make room, and resume the run"
            )

    def _look(self) -> None:
        for name, reason in self.queries.failures().items():
            self._restart(name, reason)
        stuck = [name for name in self.queries.bundles if self._is_stuck(name)]
        if stuck:
            self._rescue(stuck)

    def _restart(self, name: str, reason: str) -> None:
        first = first_line(reason)
        if StoppedError.__name__ in reason:
            raise RunFailedError(f"the pipeline was stopped by its own code: {first}")
        if now() < self._restart_after.get(name, 0.0):
            return
        count = self._restarts[name] = self._restarts.get(name, 0) + 1
        if count > MOST_RESTARTS:
            raise RunFailedError(f"bundle '{name}' failed {count} times, the last time with: {first}; nothing is lost")
        self._restart_after[name] = now() + RESTART_PAUSE * min(count, 5)
        self._say(f"bundle '{name}' failed ({first}); started anew")
        self.queries.stop_one(name)
        self.queries.start_one(name)

    def _is_stuck(self, name: str) -> bool:
        pending, seen = self.dispatcher.waiting(name)
        return pending > 0 and now() - (seen or self._began_waiting(name)) > STUCK_SECONDS

    def _began_waiting(self, name: str) -> float:
        return self._restart_after.setdefault(f"first ticket of {name}", now())

    def _rescue(self, stuck: list[str]) -> None:
        """Move what sits on a node the Master calls dead, or was moved to a slot that never starts; leave alone what is
        only slow, or waits for its own slot."""
        page = fetch_page(self.setup.master_web) if self.setup.master_web else None
        if page is None:
            return
        alive = {node for node in self.setup.nodes if (found := page.worker(node)) is not None and found.state == ALIVE}
        for name in stuck:
            slot = self.queries.bundles[name].slot
            if slot.node not in alive:
                why = f"node '{slot.node}' died"
            elif self._waits_in_vain(name):
                self._given_up.add(slot)
                why = f"slot {slot} did not start within {PATIENCE_SECONDS:g} s"
            else:
                continue
            refuge = self._refuge(alive)
            if refuge is None:
                raise RunFailedError(f"{why} and no other slot is left; nothing is lost")
            self._say(f"{why}: {self._names_of([name])} moved from {slot} to {refuge}")
            self._moved[name] = now()
            self.queries.move(name, refuge)

    def _waits_in_vain(self, name: str) -> bool:
        """It was moved long ago, and nothing on its slot has worked anything off since: somebody else has the slot."""
        since = self._moved.get(name)
        if since is None or now() - since < PATIENCE_SECONDS:
            return False
        slot = self.queries.bundles[name].slot
        return not any(one.slot == slot and one.finished > since for one in reversed(self.tickets))

    def _refuge(self, alive: Collection[str]) -> Slot | None:
        """A slot that hosts nothing, else the one that hosts the fewest bundles."""
        hosting = self.queries.hosting
        candidates = [
            slot
            for node, count in self.setup.nodes.items()
            if node in alive
            for number in range(count)
            if (slot := Slot(node, number)) not in self._given_up
        ]
        return min(candidates, key=lambda slot: len(hosting.get(slot, ())), default=None)

    def _names_of(self, bundles: Sequence[str]) -> str:
        return ", ".join(
            f"'{'+'.join(self.queries.bundles[name].operators)}' on {self.queries.bundles[name].slot}"
            for name in bundles
        )

    def _say(self, text: str) -> None:
        self.notes.append(text)
        self._tell(text)
