"""What a generation consists of: bundles on slots, and the channels between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cluster.topology import Slot


@dataclass(frozen=True, slots=True)
class Groups:
    """The key groups `first <= group < end` of a keyed operator: the state one bundle answers for."""

    operator: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """A segment of the pipeline on one slot. The name is that of the process that hosts it: a bundle of another plan
    with the same name keeps the process."""

    name: str
    slot: Slot
    operators: tuple[str, ...]
    threads: tuple[int, ...]
    sources: tuple[str, ...] = ()
    """Those of its operators that are sources."""
    groups: tuple[Groups, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Channel:
    """One stream (by its number in the pipeline) between two bundles."""

    stream: int
    sender: str
    receiver: str


@dataclass(frozen=True)
class Layout:
    """Everything that runs. `plan` says which plan it was made of, for whoever resumes the run."""

    plan: str
    bundles: tuple[Bundle, ...]
    channels: tuple[Channel, ...]

    def __post_init__(self) -> None:
        names = [bundle.name for bundle in self.bundles]
        if len(set(names)) < len(names):
            raise ValueError(f"two bundles have one name: {', '.join(sorted(names))}")
        for channel in self.channels:
            if channel.sender not in self.by_name or channel.receiver not in self.by_name:
                raise ValueError(f"a channel from '{channel.sender}' to '{channel.receiver}', which are not both there")

    @cached_property
    def by_name(self) -> dict[str, Bundle]:
        return {bundle.name: bundle for bundle in self.bundles}

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.by_name)

    @property
    def emitting(self) -> tuple[Bundle, ...]:
        """Bundles that hold a source."""
        return tuple(bundle for bundle in self.bundles if bundle.sources)

    def into(self, bundle: str) -> tuple[Channel, ...]:
        return tuple(channel for channel in self.channels if channel.receiver == bundle)

    def out_of(self, bundle: str) -> tuple[Channel, ...]:
        return tuple(channel for channel in self.channels if channel.sender == bundle)
