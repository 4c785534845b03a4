"""`penstock.up(...)`: a controller on this machine, over simulated pipelines or a Spark cluster of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster.file import read_cluster
from penstock.errors import BadInputError
from penstock.sharing.registry import DEFAULT_SHARER, SHARERS

if TYPE_CHECKING:
    from penstock.service.local import UpController
    from penstock.spark.standalone.state import RunningCluster

DEFAULT_NODES = 2


def up(
    *,
    nodes: int | None = None,
    slots: int | None = None,
    cluster: str | Path | None = None,
    unit_slots: int | None = None,
    policy: str = DEFAULT_SHARER,
    store: str | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    simulated: bool = False,
    speed: float = 1.0,
    price: float | None = None,
    folder: str | Path | None = None,
) -> UpController:
    """Comes back when the controller answers. The cluster has `nodes` with `slots` each (2 and 1), or is that of a
    file. `unit_slots` is what shares count: a node, unless it is divided further or nodes differ.

    With `simulated` pipelines run in simulated time, `speed` times as fast as the clock, without Spark; `price` is that
    of one of its nodes for an hour. The state of an earlier controller of the same folder (or `store`) is taken up
    where it was.
    """
    SHARERS.create(policy)
    if cluster is not None and (nodes, slots) != (None, None):
        raise BadInputError("a cluster file says nodes and slots itself; give either")
    nodes, slots = DEFAULT_NODES if nodes is None else nodes, 1 if slots is None else slots
    counts = [slots] if cluster is None else [node.slots for node in read_cluster(Path(cluster)).nodes]
    unit = unit_slots if unit_slots is not None else counts[0] if len(set(counts)) == 1 else 1
    for count in sorted(set(counts)):
        check_sizes(nodes, count, unit, speed, port, simulated=simulated)
    from penstock.service.local import start_controller  # noqa: PLC0415 - needs the extra `control`
    from penstock.service.settings import ServiceSettings  # noqa: PLC0415

    running = None if simulated else _cluster(nodes, slots, cluster, folder)
    settings = ServiceSettings(
        host=host,
        port=port,
        store=store or "",
        policy=policy,
        simulated=simulated,
        nodes=nodes,
        slots=slots,
        unit_slots=unit,
        speed=float(speed),
        price=None if price is None else float(price),
        cluster_file="" if cluster is None else str(Path(cluster).absolute()),
        cluster_folder="" if running is None else str(running.folder),
        master="" if running is None else running.master_url,
    )
    return start_controller(settings, folder)


def _cluster(nodes: int, slots: int, file: str | Path | None, folder: str | Path | None) -> RunningCluster:
    """The cluster that runs in the folder, or a new one."""
    from penstock.spark.standalone.cluster import cluster_up  # noqa: PLC0415 - only where Spark is meant
    from penstock.spark.standalone.state import read_state, state_folder  # noqa: PLC0415

    known = read_state(state_folder(folder))
    if known is not None and known.master_url:
        return known
    return cluster_up(nodes, slots, folder=folder) if file is None else cluster_up(cluster=file, folder=folder)


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
