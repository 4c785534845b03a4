"""What carries out orders: Spark drivers, or pipelines in simulated time, behind one contract.

Orders say what is wanted, not what to do: they may come twice, late, or again from a controller that started anew. What
has come of them is observed, and comes back as values the core understands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.control.core.incoming import Observation
    from penstock.control.core.outcome import PipelineOrder
    from penstock.control.core.records import NodeRecord


class Executors(Protocol):
    def want(self, orders: Iterable[PipelineOrder], fence: int) -> None:
        """From now on this is wanted. `fence` is the number of the controller's lease: whoever has heard of a higher
        one does not listen."""

    def observe(self, now: float) -> list[Observation]:
        """What has happened since the last time, in order."""

    def close(self) -> None:
        """The controller goes away; pipelines flow on."""


class Nodes(Protocol):
    """Where nodes come from."""

    def acquire(self, count: int, size: str | None) -> list[NodeRecord]:
        """Asked for; they join later, or do not."""

    def release(self, name: str) -> None:
        """Nothing runs there any more."""

    def observe(self, now: float) -> list[Observation]:
        """Who joined and who was lost since the last time."""

    def lingering(self) -> list[float | None]:
        """Prices of nodes that were released and are still there: they are paid for."""
