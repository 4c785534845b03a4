"""Nodes that take no threads now: set aside by hand, or for a time after they failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BY_HAND = "by hand"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A node takes nothing until a moment (seconds since the epoch), or until somebody lets it in again."""

    node: str
    reason: str = BY_HAND
    until: float | None = None

    def holds(self, at: float) -> bool:
        return self.until is None or at < self.until


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A node that fails `failures` times within `within_seconds` is set aside for `for_seconds` after the last."""

    failures: int = 3
    within_seconds: float = 600.0
    for_seconds: float = 1800.0


def after_failures(
    failed_at: Mapping[str, Sequence[float]], at: float, rule: FailureRule | None = None
) -> list[Exclusion]:
    """The nodes to set aside for their failures, given when each failed (rising), as of a moment.

    The node counts by its last `failures` failures: t[-1] - t[-failures] <= within_seconds.
    """
    rule = rule or FailureRule()
    exclusions = []
    for node, moments in failed_at.items():
        past = [moment for moment in moments if moment <= at]
        if len(past) < rule.failures or past[-1] - past[-rule.failures] > rule.within_seconds:
            continue
        until = past[-1] + rule.for_seconds
        if at < until:
            exclusions.append(Exclusion(node, f"failed {rule.failures} times within {rule.within_seconds:g} s", until))
    return exclusions


def in_force(exclusions: Iterable[Exclusion], at: float) -> dict[str, str]:
    """Excluded nodes and why, as of a moment; of several for one node the first counts."""
    table: dict[str, str] = {}
    for exclusion in exclusions:
        if exclusion.holds(at):
            table.setdefault(exclusion.node, exclusion.reason)
    return table
