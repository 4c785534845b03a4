"""What a generation consists of: bundles on slots, and the channels between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
    memory_mb: int | None = None
    """Memory of the executor on its slot; None: as much as the engine gives by itself."""


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

    @cached_property
    def memory(self) -> dict[Slot, int | None]:
        """Memory of the executor on each slot."""
        return {bundle.slot: bundle.memory_mb for bundle in self.bundles}

    @property
    def emitting(self) -> tuple[Bundle, ...]:
        """Bundles that hold a source."""
        return tuple(bundle for bundle in self.bundles if bundle.sources)

    def into(self, bundle: str) -> tuple[Channel, ...]:
        return tuple(channel for channel in self.channels if channel.receiver == bundle)

    def out_of(self, bundle: str) -> tuple[Channel, ...]:
        return tuple(channel for channel in self.channels if channel.sender == bundle)


def bundles_on_resized_slots(before: Layout, after: Layout) -> frozenset[str]:
    """Return the bundles of both layouts on slots whose executor changes its memory: a slot has room for one executor,
    so the former must end before the other starts."""
    slots = {slot for slot, memory in after.memory.items() if before.memory.get(slot, memory) != memory}
    return frozenset(bundle.name for layout in (before, after) for bundle in layout.bundles if bundle.slot in slots)


# Keyed state in a fixed number of groups, so that another plan with other threads takes it over group by group.


KEY_GROUPS = 128
"""The same for the life of a run: more bundles than this cannot share one keyed operator."""


def ranges(threads: Sequence[int], groups: int = KEY_GROUPS) -> list[tuple[int, int]]:
    """Consecutive groups for every bundle of a keyed operator, in proportion to its threads: of T threads in all,
    thread t answers for the groups `[t * G // T, (t + 1) * G // T)`."""
    total = sum(threads)
    edges = np.concatenate(([0], np.cumsum(threads))) * groups // total
    return [(int(first), int(end)) for first, end in pairwise(edges)]


def group_of(hashes: NDArray[np.uint64], groups: int = KEY_GROUPS) -> NDArray[np.int64]:
    return (hashes % np.uint64(groups)).astype(np.int64)
