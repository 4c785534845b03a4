"""The controller's process: `python -m penstock.service.server FOLDER`. Everything it needs stands in the folder."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from penstock.cluster.file import read_cluster
from penstock.control.clocks import SteadyClock, WallClock
from penstock.control.code_signals import CodeSignals
from penstock.control.controller import Controller
from penstock.control.core.records import ControllerState, Policy
from penstock.control.core.states import NodeState
from penstock.control.described import described
from penstock.control.executors.attached import WithAttached
from penstock.control.executors.processes import DriverExecutors
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.providers.budget import Budget
from penstock.control.providers.command import CommandProvider, ProviderCommands
from penstock.control.providers.observed import ObservedProvider
from penstock.control.providers.provisioning import ProvisioningOptions
from penstock.control.sizing import ModelSizing
from penstock.control.store.store import Store
from penstock.errors import BadInputError, PenstockError
from penstock.files import read_text, read_value
from penstock.modelling.library import reference_library
from penstock.process_identity import own_identity
from penstock.service.app import make_app
from penstock.service.bounded_log import log_to_stderr
from penstock.service.connections import (
    ACCEPTED_AT_ONCE,
    KEEP_ALIVE_SECONDS,
    Crowd,
    LimitedServer,
    limited_protocol,
    raise_file_limit,
)
from penstock.service.guard import Doors
from penstock.service.settings import (
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

    from penstock.control.executors.contract import Executors, Nodes

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
    if settings.provider:
        commands = read_value(ProviderCommands, Path(settings.provider))
        there = [node.name for node in known.nodes.values() if node.state is not NodeState.GONE] if known else []
        nodes = ObservedProvider(CommandProvider(commands, settings.master), there, every=ASK_COMMANDS_SECONDS)
        return nodes, commands.slots, commands.price
    if settings.simulated:
        return _simulated_nodes(settings, known), settings.slots, settings.price
    from penstock.control.providers.local import LocalProvider  # noqa: PLC0415 - only where there is a cluster

    local = LocalProvider(Path(settings.cluster_folder), settings.price)
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
