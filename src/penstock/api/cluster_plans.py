"""Place the pipelines of a whole cluster, divide a cluster among them, and explain why one does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.text import one_of
from penstock.inputs.finders import check_move_cost, find_tenants, find_whole_cluster
from penstock.planning.files import read_placement
from penstock.planning.registry import DEFAULT_SHARER, DEFAULT_WHOLE_CLUSTER_PLACER, PLACERS, SHARERS
from penstock.planning.replanning.priorities import queue
from penstock.planning.replanning.replan_cluster import DEFAULT_CLUSTER_MOVE_COST, place_again
from penstock.planning.sharing.share import HandOver, Moves, Sharing, compare_sharers, share_cluster
from penstock.planning.whole_cluster import ClusterPlacement, place_all
from penstock.planning.why_not import why_not as find_why_not

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.planning.files import WholeCluster
    from penstock.planning.sharing.contract import Tenants
    from penstock.planning.why_not import WhyNot


def whole_cluster_placers() -> list[str]:
    """The placers that place pipelines with declared demands on a whole cluster."""
    return [name for name in PLACERS.names() if PLACERS.create(name).whole_cluster]


def place(
    cluster: WholeCluster | str | Path,
    *,
    placer: str = DEFAULT_WHOLE_CLUSTER_PLACER,
    current: ClusterPlacement | str | Path | None = None,
    move_cost: float | None = None,
    exclude: Iterable[str] = (),
) -> ClusterPlacement:
    """Every pipeline of a whole cluster, those of higher priority (and within their owner's guarantee) first, each all
    or nothing. `exclude` names further nodes that take no threads now.

    With the placement that runs as `current`, pipelines stay where they are unless moving pays: moving all threads
    of one must save `move_cost` (0.5) of its network cost.
    """
    check_move_cost(move_cost, current)
    policy = PLACERS.create(placer)
    if not policy.whole_cluster:
        fitting = ", ".join(whole_cluster_placers())
        raise BadInputError(f"placer '{policy.name}' places bundles of a plan, not a whole cluster; use {fitting}")
    whole = without_nodes(find_whole_cluster(cluster), exclude)
    if current is None:
        return place_all(whole.cluster, whole.requests, policy, whole.guarantees)
    running = (
        {name: placement.by_slot() for name, placement in current.placements.items()}
        if isinstance(current, ClusterPlacement)
        else read_placement(Path(current))
    )
    cost = DEFAULT_CLUSTER_MOVE_COST if move_cost is None else move_cost
    return place_again(whole.cluster, whole.requests, policy, running, cost, whole.guarantees)


def without_nodes(whole: WholeCluster, exclude: Iterable[str]) -> WholeCluster:
    """The same with further nodes excluded by hand."""
    names = tuple(exclude)
    return replace(whole, cluster=whole.cluster.without(names)) if names else whole


def why_not(
    cluster: WholeCluster | str | Path,
    pipeline: str,
    result: ClusterPlacement,
    *,
    placer: str = DEFAULT_WHOLE_CLUSTER_PLACER,
    exclude: Iterable[str] = (),
) -> WhyNot:
    """What kept a pipeline out of a placed cluster, and the smallest changes that would let it in."""
    whole = without_nodes(find_whole_cluster(cluster), exclude)
    line = queue(whole.requests, whole.cluster, whole.guarantees)
    return find_why_not(pipeline, line, whole.cluster, result, PLACERS.create(placer))


def share(
    tenants: Tenants | str | Path,
    *,
    policy: str = DEFAULT_SHARER,
    nodes: int | None = None,
    moves: Moves | str = Moves.FEWEST,
) -> Sharing:
    """Who gets how much of a cluster, which nodes those are, and what has to move."""
    sharer, how_moved = SHARERS.create(policy), one_of(Moves, moves, "way to move")
    return share_cluster(find_tenants(tenants, nodes), sharer, how_moved)


def compare_shares(tenants: Tenants | str | Path, *, nodes: int | None = None) -> list[tuple[Sharing, HandOver | None]]:
    """Every policy's division with the fewest moves, and beside it what the published way to move would do."""
    return list(compare_sharers(find_tenants(tenants, nodes)))
