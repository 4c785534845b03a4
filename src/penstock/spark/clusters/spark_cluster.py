"""The common part of all cluster managers of Spark's: sessions, and executors added and ended while one runs.

Used as it is, it serves every manager that Spark knows and Penstock does not read: its nodes and holders are unknown,
and executors cannot be pinned.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, ClusterError
from penstock.base.files import temporary_folder
from penstock.cluster.books import check_requests, choose_slots, why_not_free
from penstock.cluster.contract import (
    DEADLINE_SECONDS,
    AcquisitionState,
    AppSession,
    ClusterEvent,
    ClusterEventKind,
    ClusterManager,
    Purpose,
    SlotAcquisition,
)
from penstock.cluster.topology import Slot
from penstock.spark.session.secret import read_secret

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from penstock.cluster.contract import AppId, AppRequest, ClusterAddress, Holder, NodeState, SlotRequest

ATTEMPT_SECONDS = 15.0
"""A slot that was free and does not come within this time may have gone to another application: choose again."""
LOOK_SECONDS = 0.3
SEEN_SECONDS = 10.0
"""An executor that has registered with its driver is on the manager's books within this time."""


@dataclass(slots=True)
class _Application:
    """An application that this process has started."""

    request: AppRequest
    executors: Any
    lock: threading.Lock = field(default_factory=threading.Lock)


class SparkCluster(ClusterManager):
    def __init__(self, master: str, secret: str | None = None) -> None:
        self.master = master
        self._secret = secret
        self._apps: dict[AppId, _Application] = {}
        self._refused: list[ClusterEvent] = []

    def nodes(self) -> Sequence[NodeState] | None:
        return None

    def holdings(self) -> Mapping[Slot, Holder] | None:
        return None

    def refusals(self) -> Sequence[ClusterEvent]:
        return tuple(self._refused)

    # Sessions.

    def session(self, app: AppRequest) -> AppSession:
        if app.pinned and not self.pins:
            raise BadInputError(f"master '{self.master}': its Workers do not offer slots by name")
        stack = ExitStack()
        try:
            made = self._placed(app, stack) if app.purpose is Purpose.PLACED else self._fused(app, stack)
        except BaseException:
            stack.close()
            raise
        self._apps[made.id] = _Application(app, made.executors)
        stack.callback(self._apps.pop, made.id, None)
        made.on_close = stack.close
        return made

    def _placed(self, app: AppRequest, stack: ExitStack) -> AppSession:
        from penstock.spark.session.cluster import cluster_session  # noqa: PLC0415 - Spark loads only when it is used

        session = stack.enter_context(
            cluster_session(self.master, app.name, app.settings, secret=self._secret, log=app.log)
        )
        return AppSession(str(session.sparkContext.applicationId), session)

    def _fused(self, app: AppRequest, stack: ExitStack) -> AppSession:
        from penstock.spark.internals.executors import (  # noqa: PLC0415 - Spark loads only when it is used
            FusedExecutors,
            PinnedExecutors,
            executor_settings,
        )
        from penstock.spark.session.cluster import start_fused_session  # noqa: PLC0415
        from penstock.spark.session.embedded import end_session  # noqa: PLC0415
        from penstock.spark.session.user_modules import own_archive_in  # noqa: PLC0415

        folder = stack.enter_context(temporary_folder("spark"))
        ships = not self.is_on_this_machine if app.ship_code is None else app.ship_code
        modules = own_archive_in(folder / "modules") if ships else None
        settings = {
            # pinned ones are asked for when there is a session
            **executor_settings(0 if app.pinned else app.executors, by_slot=self.pins),
            "spark.executor.memory": f"{app.memory_mb}m",
            **app.settings,
        }
        log, scratch = app.log or folder / "java.log", app.scratch or folder / "scratch"
        session = start_fused_session(self.master, log, app.name, settings, secret=self._secret, scratch=scratch)
        stack.callback(end_session, session)
        if modules is not None:
            session.sparkContext.addPyFile(str(modules))
        executors = PinnedExecutors(session, app.memory_mb) if app.pinned else FusedExecutors(session)
        return AppSession(str(session.sparkContext.applicationId), session, executors)

    # Executors.

    def acquire(self, app: AppId, slots: Sequence[SlotRequest], deadline: float = DEADLINE_SECONDS) -> SlotAcquisition:
        known = self._known(app)
        default = known.request.memory_mb
        if not known.request.pinned:
            for request in slots:
                if request.node is not None:
                    raise BadInputError(f"executor on {request}: application '{app}' was not started with pinned=True")
                if request.memory_mb not in {None, default} or request.cores != 1:
                    raise BadInputError(f"executor: those of application '{app}' have 1 core and {default} MB each")
        sized = [replace(request, memory_mb=request.memory_mb or default) for request in slots]
        nodes = self.nodes()
        if nodes is not None:
            check_requests(sized, nodes)
        acquisition = SlotAcquisition(app, sized, deadline)
        threading.Thread(target=self._follow, args=(known, acquisition), name="acquire", daemon=True).start()
        return acquisition

    def _known(self, app: AppId) -> _Application:
        known = self._apps.get(app)
        if known is None:
            raise ClusterError(f"application '{app}' was not started by this process; start it with session()")
        if known.executors is None:
            raise ClusterError(f"application '{app}': executors of a placed run come and go with its tasks")
        return known

    def _follow(self, known: _Application, acquisition: SlotAcquisition) -> None:
        try:
            (self._pin if known.request.pinned else self._add)(known, acquisition)
        except Exception as error:  # the acquisition carries it to the caller
            acquisition.fail(str(error))
        if acquisition.state is not AcquisitionState.GRANTED:
            kind = ClusterEventKind.EXECUTOR_REFUSED
            self._refused.append(ClusterEvent(kind, application=acquisition.app, why=acquisition.why))

    def _pin(self, known: _Application, acquisition: SlotAcquisition) -> None:
        why = f"the manager at {self.master} does not answer"
        while acquisition.missing and acquisition.seconds_left > 0:
            nodes, holdings, missing = self.nodes(), self.holdings(), acquisition.missing
            if nodes is not None and holdings is not None:
                with known.lock:
                    taken = {*holdings, *known.executors.asked}
                    chosen = choose_slots(list(missing.values()), nodes, taken)
                    wanted = {place: slot for place, slot in zip(missing, chosen, strict=True) if slot is not None}
                    came = self._come(known, {slot: missing[place] for place, slot in wanted.items()}, acquisition)
                acquisition.grant({place: slot for place, slot in wanted.items() if slot in came})
                why = "; ".join(
                    dict.fromkeys(why_not_free(request, nodes, holdings) for request in acquisition.missing.values())
                )
            if acquisition.missing:
                pause(min(LOOK_SECONDS, acquisition.seconds_left))
        if acquisition.missing:
            acquisition.expire(why)

    def _come(
        self, known: _Application, wanted: Mapping[Slot, SlotRequest], acquisition: SlotAcquisition
    ) -> Collection[Slot]:
        """Return which of these slots came within one attempt."""
        if not wanted:
            return ()
        places = {**known.executors.asked, **{slot: request.size for slot, request in wanted.items()}}
        try:
            known.executors.change_to(len(places), min(ATTEMPT_SECONDS, acquisition.seconds_left), places)
        except ClusterError:
            return set(wanted) & set(known.executors.here().values())
        return wanted.keys()

    def _add(self, known: _Application, acquisition: SlotAcquisition) -> None:
        why = ""
        with known.lock:
            before = set(known.executors.ids())
            try:
                known.executors.change_to(len(before) + len(acquisition.asked), acquisition.seconds_left)
            except ClusterError as error:
                why = str(error)
            gained = [name for name in known.executors.ids() if name not in before]
        watch = Stopwatch()
        slots = self._slots_of(acquisition.app, known)
        while not set(gained) <= slots.keys() and watch.seconds() < SEEN_SECONDS:
            pause(LOOK_SECONDS)
            slots = self._slots_of(acquisition.app, known)
        acquisition.grant(dict(enumerate(slots[name] for name in gained[: len(acquisition.asked)] if name in slots)))
        if acquisition.missing:
            acquisition.expire(why)

    def _slots_of(self, app: AppId, known: _Application) -> dict[str, Slot]:
        """Return the slots of an application by executor: by its own records, else the manager or Spark."""
        if known.request.pinned:
            return dict(known.executors.here())
        holdings = self.holdings()
        if holdings is None:
            return {name: Slot(host, int(name)) for name, host in known.executors.hosts().items()}
        return {str(held.executor): slot for slot, held in holdings.items() if held.application == app}

    def release(self, app: AppId, slots: Sequence[Slot]) -> None:
        known = self._known(app)
        with known.lock:
            held = {slot: executor for executor, slot in self._slots_of(app, known).items()}
            for slot in slots:
                if slot not in held:
                    raise ClusterError(f"slot {slot} is not held by application '{app}'")
            if known.request.pinned:
                rest = {slot: size for slot, size in known.executors.asked.items() if slot not in slots}
                known.executors.change_to(len(rest), places=rest)
            else:
                known.executors.end([held[slot] for slot in slots])


def open_any(address: ClusterAddress) -> ClusterManager:
    """Open a cluster of a manager that Spark knows: only sessions, and executors on any node."""
    return SparkCluster(address.master, None if address.secret_file is None else read_secret(address.secret_file))
