"""Start, end, serve and repair the controller of this machine."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.extras import require_packages
from penstock.base.files import read_text, write_text
from penstock.cluster.file import read_cluster
from penstock.control.provisioning import IDLE_SECONDS
from penstock.control.registry import DEFAULT_PROVIDER, NODE_PROVIDERS
from penstock.planning.registry import DEFAULT_SHARER, SHARERS

if TYPE_CHECKING:
    from penstock.control.contracts import NodeOffer
    from penstock.control.store.repair import StoreRepair
    from penstock.service.local import UpController
    from penstock.spark.clusters.local.state import RunningCluster


DEFAULT_NODES = 2

SERVER_PACKAGES = ("fastapi", "prometheus_client", "psutil", "sqlalchemy", "uvicorn")
"""Packages that the controller's own process imports."""


def up(
    *,
    nodes: int | None = None,
    slots: int | None = None,
    cluster: str | Path | None = None,
    unit_slots: int | None = None,
    policy: str = DEFAULT_SHARER,
    store: str | None = None,
    take_over: bool = False,
    host: str = "127.0.0.1",
    port: int = 0,
    simulated: bool = False,
    speed: float = 1.0,
    price: float | None = None,
    provider: str = DEFAULT_PROVIDER,
    budget: int | None = None,
    hourly_budget: float | None = None,
    idle_seconds: float = IDLE_SECONDS,
    folder: str | Path | None = None,
) -> UpController:
    """Comes back when the controller answers. The cluster has `nodes` with `slots` each (2 and 1), or is that of a
    file. `unit_slots` is what shares count: a node, unless it is divided further or nodes differ.

    With `simulated` pipelines run in simulated time, `speed` times as fast as the clock, without Spark. The state of an
    earlier controller of the same folder (or `store`) is taken up where it was.

    A `store` belongs to one state folder. With `take_over` it is taken from the controller of another folder or host,
    or from one that still runs: that one can write no more, and drivers that it started must be ended by hand.

    With a `budget` (nodes) or `hourly_budget` (what all may cost in an hour, a node costing `price`) nodes come when
    units are short and go when they were idle for `idle_seconds`, never below `nodes`. They come from the `provider`:
    `local` (this machine, or simulated ones), `command:FILE`, or another of the registry `NODE_PROVIDERS`.
    """
    require_packages(*SERVER_PACKAGES, needs="the controller needs")
    SHARERS.create(policy)
    if cluster is not None and (nodes, slots) != (None, None):
        raise BadInputError("a cluster file says nodes and slots itself; give either")
    offer = _offer(provider)
    if offer is not None and (cluster is not None or slots is not None or price is not None):
        raise BadInputError("provider=: it says slots and price of a node; give neither them nor a cluster file")
    nodes, slots = DEFAULT_NODES if nodes is None else nodes, 1 if slots is None else slots
    slots = slots if offer is None else offer.slots
    counts = [slots] if cluster is None else [node.slots for node in read_cluster(Path(cluster)).nodes]
    unit = unit_slots if unit_slots is not None else counts[0] if len(set(counts)) == 1 else 1
    for count in sorted(set(counts)):
        check_sizes(nodes, count, unit, speed, port, simulated=simulated)
    if provider != DEFAULT_PROVIDER and not simulated:
        raise BadInputError(
            "provider=: nodes from elsewhere are for simulated pipelines so far: the Spark cluster of `up` listens "
            "on this machine only"
        )
    node_price = price if offer is None else offer.price
    check_budget(nodes, budget, hourly_budget, node_price, idle_seconds)
    from penstock.service.local import ServiceSettings, start_controller  # noqa: PLC0415 - needs the extra `control`

    running = None if simulated else _cluster(nodes, slots, cluster, folder)
    settings = ServiceSettings(
        host=host,
        port=port,
        store=store or "",
        take_over=take_over,
        policy=policy,
        simulated=simulated,
        nodes=nodes,
        slots=slots,
        unit_slots=unit,
        speed=float(speed),
        price=None if price is None else float(price),
        provider="" if provider == DEFAULT_PROVIDER else _absolute(provider),
        budget=budget,
        hourly_budget=None if hourly_budget is None else float(hourly_budget),
        idle_seconds=float(idle_seconds),
        cluster_file="" if cluster is None else str(Path(cluster).absolute()),
        cluster_folder="" if running is None else str(running.folder),
        master="" if running is None else running.master_url,
    )
    return start_controller(settings, folder)


def _cluster(nodes: int, slots: int, file: str | Path | None, folder: str | Path | None) -> RunningCluster:
    """The cluster that runs in the folder, or a new one."""
    from penstock.base.state_folder import state_folder  # noqa: PLC0415
    from penstock.spark.clusters.local.lifecycle import cluster_up  # noqa: PLC0415
    from penstock.spark.clusters.local.state import read_state  # noqa: PLC0415
    from penstock.spark.session.make_archive import make_where_there_is_none  # noqa: PLC0415 - only where Spark is meant

    known = read_state(state_folder(folder))
    if known is not None and known.master_url:
        return known
    make_where_there_is_none()
    return cluster_up(nodes, slots, folder=folder) if file is None else cluster_up(cluster=file, folder=folder)


def _offer(provider: str) -> NodeOffer | None:
    """Return what one more node of a provider is; None: as the nodes that are there."""
    name, _, options = provider.partition(":")
    offer: NodeOffer | None = NODE_PROVIDERS.load(name).offer(options)
    return offer


def _absolute(provider: str) -> str:
    """Return the provider as another process finds it: a file by its absolute path."""
    name, colon, options = provider.partition(":")
    return f"{name}:{Path(options).absolute()}" if colon and Path(options).exists() else provider


def check_budget(
    nodes: int, budget: int | None, hourly_budget: float | None, price: float | None, idle_seconds: float
) -> None:
    """A budget below what is to be there from the start is no budget."""
    if budget is not None and not nodes <= budget <= 100_000:
        raise BadInputError(f"budget=: expected {nodes} (the nodes to begin with) to 100000, found {budget}")
    if not 0 < idle_seconds < float("inf"):
        raise BadInputError(f"idle_seconds=: expected a number above 0, found {idle_seconds:g}")
    if hourly_budget is None:
        return
    if not price:
        raise BadInputError("hourly_budget=: nodes have no price; say price= (or in the provider's file)")
    if not price * nodes <= hourly_budget < float("inf"):
        raise BadInputError(f"hourly_budget=: {nodes} nodes cost {price * nodes:g} an hour already")


def check_sizes(nodes: int, slots: int, unit: int, speed: float, port: int, *, simulated: bool) -> None:
    for what, value in (("nodes", nodes), ("slots", slots), ("unit_slots", unit)):
        if not 1 <= value <= 100_000:
            raise BadInputError(f"{what}=: expected a whole number from 1 to 100000, found {value}")
    if slots % unit:
        raise BadInputError(f"unit_slots=: {unit} does not divide the {slots} slots of a node")
    if not 0 < speed <= 100_000:
        raise BadInputError(f"speed=: expected a number above 0 and at most 100000, found {speed:g}")
    if speed != 1 and not simulated:
        raise BadInputError("speed=: only simulated pipelines can be faster than the clock; add simulated=True")
    if not 0 <= port <= 65_535:
        raise BadInputError(f"port=: expected 0 (any) to 65535, found {port}")


def down(folder: str | Path | None = None) -> str | None:
    """The address of the controller that was ended; None where none ran. Drivers and the cluster end with it; its store
    and what pipelines have committed stay, for the next `up`."""
    from penstock.service.local import stop_controller  # noqa: PLC0415 - needs the extra `control`
    from penstock.spark.clusters.local.lifecycle import cluster_down  # noqa: PLC0415 - needs the extra `spark`

    ended = stop_controller(folder)
    cluster_down(folder)
    return ended


def serve(
    *,
    nodes: int = 2,
    slots: int = 1,
    unit_slots: int | None = None,
    policy: str = DEFAULT_SHARER,
    store: str | None = None,
    take_over: bool = False,
    host: str = "127.0.0.1",
    port: int = 8080,
    speed: float = 1.0,
    price: float | None = None,
    answer_to: tuple[str, ...] = (),
    token_folder: str | Path | None = None,
    folder: str | Path | None = None,
) -> None:
    """Answers until SIGTERM or Ctrl-C. Pipelines are simulated. `answer_to` are names by which others reach it, beside
    `host`. `token_folder` has files `token`, `read-token` and `attach-token`; without, tokens are made as by `up`."""
    require_packages(*SERVER_PACKAGES, needs="the controller needs")
    SHARERS.create(policy)
    unit = slots if unit_slots is None else unit_slots
    check_sizes(nodes, slots, unit, speed, port, simulated=True)
    from penstock.base.state_folder import state_folder  # noqa: PLC0415
    from penstock.service.local import (  # noqa: PLC0415
        SETTINGS,
        TOKENS,
        ServiceSettings,
        controller_folder,
        write_spec,
    )
    from penstock.service.server import serve as serve_folder  # noqa: PLC0415 - needs the extra `control`

    own = controller_folder(state_folder(folder))
    for name in TOKENS:
        write_text(own / name, _token(token_folder, name) + "\n")
    settings = ServiceSettings(
        host=host,
        port=port,
        store=store or "",
        take_over=take_over,
        policy=policy,
        simulated=True,
        nodes=nodes,
        slots=slots,
        unit_slots=unit,
        speed=float(speed),
        price=None if price is None else float(price),
        answer_to=answer_to,
    )
    write_spec(own / SETTINGS, settings)
    serve_folder(own)


def _token(folder: str | Path | None, name: str) -> str:
    if folder is None:
        return secrets.token_urlsafe(32)
    file = Path(folder) / name
    if not file.exists():
        raise BadInputError(
            f"{file}: no such token; make one with at least 16 letters, as `openssl rand -hex 32` prints"
        )
    token = read_text(file).strip()
    if len(token) < 16:
        raise BadInputError(f"{file}: a token has at least 16 letters")
    return token


def repair_store(store: str | None = None, *, dry_run: bool = False, folder: str | Path | None = None) -> StoreRepair:
    """Without a `store`, that of the controller that was last started in the state folder. No controller can be started
    there meanwhile."""
    from penstock.base.files import read_value  # noqa: PLC0415
    from penstock.base.state_folder import locked, state_folder  # noqa: PLC0415
    from penstock.control.store.repair import repair  # noqa: PLC0415 - needs the extra `control`
    from penstock.service.local import (  # noqa: PLC0415
        SETTINGS,
        ServiceSettings,
        controller_folder,
        own_store_url,
    )

    base = state_folder(folder)
    with locked(base):
        own = controller_folder(base)
        if store is None and (own / SETTINGS).exists():
            store = read_value(ServiceSettings, own / SETTINGS).store
        return repair(store or own_store_url(own), dry_run=dry_run)
