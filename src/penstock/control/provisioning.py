"""When nodes are acquired and released: pure, from what the controller knows.

Acquired: as many as the units that are wanted and not there need, at least what is to be kept, as far as the budget
allows, unless some are on their way. Released: what was idle for a while, but never below what is to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.tolerance import whole_down
from penstock.control.core.records import WANTING, NodePhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.control.core.records import ControllerState


# The budget: max nodes and max price per hour.


@dataclass(frozen=True, slots=True)
class Budget:
    nodes: int | None = None
    price_per_hour: float | None = None

    def allows(self, prices: Iterable[float | None], asked: int, price: float | None) -> int:
        """Of `asked` more nodes at `price`, how many may be had beside nodes with these prices (those that were asked
        for and have not come count: they may). A node without a price counts for nothing.

        min(asked, nodes - have, floor((price_per_hour - sum of prices) / price))
        """
        have = list(prices)
        allowed = asked if self.nodes is None else min(asked, self.nodes - len(have))
        if self.price_per_hour is not None and price:
            left = self.price_per_hour - sum(known or 0.0 for known in have)
            allowed = whole_down(min(allowed, left / price))
        return max(0, allowed)


IDLE_SECONDS = 600.0
PATIENCE_SECONDS = 30.0
"""A shortage must last so long: what is being freed may end it."""
AGAIN_SECONDS = 300.0
"""After nodes did not come, none is asked for so long."""


@dataclass(frozen=True, slots=True)
class ProvisioningOptions:
    budget: Budget = field(default_factory=Budget)
    keep: int = 1
    """Nodes there are at least."""
    node_slots: int = 1
    node_price: float | None = None
    idle_seconds: float = IDLE_SECONDS


@dataclass(frozen=True, slots=True)
class ProvisioningMemory:
    short_since: float | None = None
    idle_since: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    given_up_at: float | None = None


@dataclass(frozen=True, slots=True)
class Provision:
    """What to do about nodes now: nothing, most of the time."""

    acquire: int = 0
    release: tuple[str, ...] = ()
    why: str = ""
    refused: str = ""
    """Why some of what is wanted may not be had."""


def provision(
    memory: ProvisioningMemory,
    state: ControllerState,
    options: ProvisioningOptions,
    now: float,
    lingering: Sequence[float | None] = (),
) -> tuple[ProvisioningMemory, Provision]:
    """`lingering` are the prices of nodes that were let go and are still there."""
    wanting = [record for record in state.pipelines.values() if record.state in WANTING and not record.paused]
    wanted = sum(record.desired for record in wanting)
    there = [node for node in state.nodes.values() if node.state in {NodePhase.ALIVE, NodePhase.JOINING}]
    coming = [node for node in there if node.state is NodePhase.JOINING]
    units = sum(node.slots // state.unit_slots for node in there)
    used = {slot.node for record in state.pipelines.values() for slot in (*record.may_hold, *record.assigned)}
    idle = {
        node.name: memory.idle_since.get(node.name, now)
        for node in there
        if node.state is NodePhase.ALIVE and node.name not in used
    }
    short = max(wanted, options.keep * (options.node_slots // state.unit_slots)) - units
    since = None if short <= 0 else memory.short_since if memory.short_since is not None else now
    lost = [node for node in state.nodes.values() if node.state is NodePhase.GONE and now - node.since < AGAIN_SECONDS]
    after = ProvisioningMemory(since, MappingProxyType(idle), now if lost and short > 0 else memory.given_up_at)
    if since is not None and now - since >= PATIENCE_SECONDS and not coming and not _given_up(memory, now):
        needed = -(-short * state.unit_slots // options.node_slots)
        allowed = allowed_more(state, options, needed, lingering)
        why = f"{units + short} units are wanted and {units} are there"
        refused = "" if allowed == needed else f"{why}: {needed} more nodes are needed and the budget allows {allowed}"
        return after, Provision(allowed, why=why, refused=refused)
    if short <= 0:
        spare = max(0, len(there) - options.keep)
        # released nodes must not be wanted again at once
        room = (units - wanted) // max(1, options.node_slots // state.unit_slots)
        old = sorted(name for name, began in idle.items() if now - began >= options.idle_seconds)
        release = tuple(old[: min(spare, room)])
        if release:
            return after, Provision(release=release, why=f"idle for {options.idle_seconds:.0f} s")
    return after, Provision()


def allowed_more(
    state: ControllerState, options: ProvisioningOptions, needed: int, lingering: Sequence[float | None]
) -> int:
    """Nodes that leave, are still to come, or linger are paid for like all others."""
    paid = [node.price for node in state.nodes.values() if node.state is not NodePhase.GONE]
    return options.budget.allows([*paid, *lingering], needed, options.node_price)


def _given_up(memory: ProvisioningMemory, now: float) -> bool:
    return memory.given_up_at is not None and now - memory.given_up_at < AGAIN_SECONDS
