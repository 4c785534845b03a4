"""Offsets of a commit: by source where it is one sequence, by source/TOPIC/PARTITION where it is several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def of_sources(offsets: Mapping[str, Any], sources: Collection[str]) -> dict[str, int]:
    """What the bundle that emits these sources must know."""
    whole = dict.fromkeys(sources, 0)
    return {**whole, **{key: int(at) for key, at in offsets.items() if key.partition("/")[0] in whole}}


def taken_in(offsets: Mapping[str, Any]) -> int:
    """Tuples of the furthest source that emits the load, which all of them emit. Offsets of topics are no counts: they
    begin anywhere and have holes."""
    return max((int(at) for key, at in offsets.items() if "/" not in key), default=0)
