"""What a provider is asked, and what it answers. It may be slow, fail or lie: whoever asks believes only what `list`
says, and only for so long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.errors import PenstockError


class ProviderError(PenstockError):
    """A provider did not do what it was asked to; nodes stay as they were."""


@dataclass(frozen=True, slots=True)
class ProvidedNode:
    name: str
    slots: int
    rack: str = "r1"
    memory_mb: float | None = None
    price: float | None = None
    """Per hour."""
    alive: bool = True


class Provider(Protocol):
    def acquire(self, count: int, size: str | None) -> list[ProvidedNode]:
        """Nodes that were asked for, by the names they will have; they come later, or do not."""

    def release(self, name: str) -> None:
        """Nothing runs there any more."""

    def list(self) -> list[ProvidedNode]:
        """All there are now."""
