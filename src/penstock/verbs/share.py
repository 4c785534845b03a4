"""`penstock.share(...)`: who gets how much of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobs.find import find_tenants
from penstock.lookup import one_of
from penstock.sharing.handover import HandOver, Moves
from penstock.sharing.registry import DEFAULT_SHARER, SHARERS
from penstock.sharing.share import Sharing, compare_sharers, share_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.sharing.tenants import Tenants


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
