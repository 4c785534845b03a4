"""The controller's process: `python -m penstock.service.server FOLDER`. Everything it needs stands in the folder."""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import signal
import socket
import stat
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError, PenstockError
from penstock.base.files import read_text, read_value
from penstock.base.process_identity import own_identity
from penstock.cluster.file import read_cluster
from penstock.control.clocks import SteadyClock, WallClock
from penstock.control.code_hooks import CodeSignals
from penstock.control.contracts import NodeOffer, ProviderSetting
from penstock.control.controller import Controller
from penstock.control.core.records import ControllerState, NodePhase, Policy
from penstock.control.executors.attached_applications import WithAttached
from penstock.control.executors.driver_processes import DriverExecutors
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.node_providers import ObservedProvider
from penstock.control.pipeline_document import described
from penstock.control.provisioning import Budget, ProvisioningOptions
from penstock.control.registry import DEFAULT_PROVIDER, NODE_PROVIDERS
from penstock.control.sizing import ModelSizing
from penstock.control.store.store import Store
from penstock.modelling.library import reference_library
from penstock.service.app import make_app
from penstock.service.connections import (
    ACCEPTED_AT_ONCE,
    KEEP_ALIVE_SECONDS,
    Crowd,
    LimitedServer,
    limited_protocol,
    raise_file_limit,
)
from penstock.service.http import Doors
from penstock.service.local import (
    ATTACH_TOKEN,
    DRIVERS,
    LOG,
    READ_TOKEN,
    RUNNING,
    SETTINGS,
    TOKEN,
    RunningService,
    ServiceSettings,
    own_store_url,
    write_spec,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from penstock.control.contracts import Executors, Nodes


# A log that cannot fill the disk: repeated lines are counted, and a long file is cut.


MAX_LOG_BYTES = 5 * 1024 * 1024
"""Max bytes of the file; as much again is kept beside it, with the suffix .1."""
MAX_REPEATS = 10
"""Messages of one kind in `WINDOW_SECONDS`."""
WINDOW_SECONDS = 60.0
MAX_MESSAGES = 300
"""Max messages of all kinds together in `WINDOW_SECONDS`."""
MAX_KINDS = 200
ALL_KINDS = ("", "")
MAX_KIND_LETTERS = 80
DIGITS = re.compile(r"\d+")


class RepeatFilter(logging.Filter):
    """Passes the first messages of a kind in a minute, and with the first of a later minute how many were left out. Two
    are of one kind if they differ in digits or after their beginning; of all kinds together there is a limit too."""

    def __init__(self) -> None:
        super().__init__()
        self._watch = Stopwatch()
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        beginning = text.partition("\n")[0][:MAX_KIND_LETTERS]
        kind = (record.name, f"{error} {DIGITS.sub('', beginning)}")
        left_out, passes = self._count(kind, MAX_REPEATS)
        if passes and left_out:
            record.msg, record.args = f"{text} ({left_out} more were left out)", ()
        return passes and self._count(ALL_KINDS, MAX_MESSAGES)[1]

    def _count(self, kind: tuple[str, str], most: int) -> tuple[int, bool]:
        """Return the count left out of the last window, if this message begins a new one, and whether it passes."""
        now = self._watch.seconds()
        began, count = self._kinds.pop(kind, (now, 0))
        left_out = 0
        if now - began >= WINDOW_SECONDS:
            left_out, began, count = max(0, count - most), now, 0
        while len(self._kinds) >= MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = (began, count + 1)
        return left_out, count < most


class BoundedHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error. If that is the file `path`, it is copied and cut once it is too long: whoever else
    writes to it (a library, a crash) goes on at its new end, because it is opened to append."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self.addFilter(RepeatFilter())

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self._path is not None:
            self._cut(self._path)

    def _cut(self, path: Path) -> None:
        try:
            number = self.stream.fileno()
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode) or about.st_size <= MAX_LOG_BYTES:
                return
            if not os.path.samestat(about, path.stat()):
                return
            older = path.with_name(path.name + ".1")
            older.touch(mode=0o600)
            shutil.copyfile(path, older)
            os.truncate(path, 0)
        except (OSError, ValueError):
            return  # a full disk: the next message tries again


def log_to_stderr(path: Path | None = None) -> None:
    """All loggers of this process; `path` is the file that standard error may be."""
    handler = BoundedHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    for known in list(root.handlers):
        root.removeHandler(known)
    root.addHandler(handler)


LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
LONGEST_LOOK, SHORTEST_LOOK = 0.2, 0.05
ASK_MASTER_SECONDS, ASK_COMMANDS_SECONDS = 1.0, 5.0
"""Seconds between two requests for the list of nodes."""

SWITCH_SECONDS = 0.0005
"""A thread that computes gives way to one that has something to answer after this long; Python's own 5 ms are paid at
every reading and writing of a request while a pass is made."""
GARBAGE = (10_000, 20, 50)
"""Thresholds of garbage collection: a state is thousands of values that refer to each other in no
circle, so looking as often as Python does finds nothing and holds up answers."""


def make_controller(settings: ServiceSettings, folder: Path) -> tuple[Controller, WithAttached]:
    """Make a controller with the state of its store, if any, and the executors for attached applications."""
    store = Store(settings.store or own_store_url(folder), folder=folder, take_over=settings.take_over)
    known = store.load()
    sizing = ModelSizing(reference_library(), settings.unit_slots)
    latest = max((record.since for record in known.pipelines.values()), default=0.0) if known else 0.0
    clock = SteadyClock(settings.speed, not_before=max(latest, known.last_pass if known else 0.0))
    executors = _executors(settings, folder, store, sizing, clock.now())
    attached = WithAttached(executors, settings.unit_slots)
    nodes, node_slots, price = _nodes(settings, known)
    budget = Budget(settings.budget, settings.hourly_budget)
    controller = Controller(
        store,
        attached,
        nodes,
        sizing,
        clock,
        WallClock(),
        first=ControllerState(policy=Policy(settings.policy), unit_slots=settings.unit_slots),
        signals=CodeSignals(),
        look_seconds=max(SHORTEST_LOOK, LONGEST_LOOK / settings.speed),
        provisioning=None
        if budget == Budget()
        else ProvisioningOptions(budget, settings.nodes, node_slots, price, settings.idle_seconds),
    )
    return controller, attached


def _nodes(settings: ServiceSettings, known: ControllerState | None) -> tuple[Nodes, int, float | None]:
    """Return the node provider, and slots and price of one more node."""
    setting = ProviderSetting(Path(settings.cluster_folder), settings.master, settings.price)
    if settings.provider:
        name, _, options = settings.provider.partition(":")
        if name not in NODE_PROVIDERS.names():  # settings of 0.1 have the file of the commands alone
            name, options = "command", settings.provider
        provider_class = NODE_PROVIDERS.load(name)
        offer = provider_class.offer(options) or NodeOffer(settings.slots, settings.price)
        there = [node.name for node in known.nodes.values() if node.state is not NodePhase.GONE] if known else []
        nodes = ObservedProvider(provider_class.make(options, setting), there, every=ASK_COMMANDS_SECONDS)
        return nodes, offer.slots, offer.price
    if settings.simulated:
        return _simulated_nodes(settings, known), settings.slots, settings.price
    local = NODE_PROVIDERS.load(DEFAULT_PROVIDER).make("", setting)
    return ObservedProvider(local, every=ASK_MASTER_SECONDS), settings.slots, settings.price


def _simulated_nodes(settings: ServiceSettings, known: ControllerState | None) -> SimulatedNodes:
    cluster = read_cluster(Path(settings.cluster_file)) if settings.cluster_file and not known else None
    nodes = SimulatedNodes(0 if known else settings.nodes, settings.slots, price=settings.price, cluster=cluster)
    if known:
        nodes.know(known.nodes)
    return nodes


def _executors(settings: ServiceSettings, folder: Path, store: Store, sizing: ModelSizing, now: float) -> Executors:
    """Make the executors. Drivers find the cluster as all clients do: by the folder of its state."""
    if settings.simulated:
        return SimulatedExecutors(sizing, settings.unit_slots, now=now)
    environment = {**os.environ, "PENSTOCK_STATE": settings.cluster_folder}
    return DriverExecutors(folder / DRIVERS, environment, store=store.id)


def listening(host: str, port: int) -> socket.socket:
    """Connections it accepts send at once: else the body of an answer waits 40 ms for its headers' acknowledgement, and
    asyncio sees to that only on sockets it has made itself."""
    listener = socket.create_server((host, port))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def server_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limited_protocol(Crowd(raise_file_limit())),
        ws="none",
        # the address of a client is that of its connection, whatever it claims
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2,
        # messages go where those of the controller go, and are counted with them
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
    )


def serve(folder: Path) -> None:
    settings = read_value(ServiceSettings, folder / SETTINGS)
    controller, attached = make_controller(settings, folder)
    controller.look()
    if settings.provider and not controller.state.nodes:
        controller.add_nodes(settings.nodes, why="to begin with")
    try:
        listener = listening(settings.host, settings.port)
    except OSError as error:
        controller.close()
        raise BadInputError(f"port {settings.port} of {settings.host}: {error.strerror or error}") from error
    port = listener.getsockname()[1]
    doors = Doors(
        read_text(folder / TOKEN).strip(),
        read_text(folder / READ_TOKEN).strip(),
        LOOPBACK_NAMES | {settings.host.lower(), *map(str.lower, settings.answer_to)},
        read_text(folder / ATTACH_TOKEN).strip(),
    )
    app = make_app(
        controller,
        doors,
        partial(described, folder=Path.cwd(), to_run=not settings.simulated),
        attached.log_of,
        loads_change=settings.simulated,
        attached=attached,
    )
    log_to_stderr(folder / LOG)
    server = LimitedServer(server_config(app))
    sys.setswitchinterval(SWITCH_SECONDS)
    # loaded objects stay: to look through all of them for garbage would hold up every answer
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    controller.start()
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    write_spec(
        folder / RUNNING,
        RunningService(
            url=f"http://{shown}:{port}",
            **dict(own_identity()),
            master=settings.master or None,
            nodes=tuple(controller.state.nodes),
        ),
    )
    try:
        server.run(sockets=[listener])
    finally:
        (folder / RUNNING).unlink(missing_ok=True)
        controller.close()


def main() -> int:
    log_to_stderr()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve(Path(sys.argv[1]))
    except KeyboardInterrupt:
        return 0
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
