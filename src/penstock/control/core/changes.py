"""The stages of a change that is under way: drained, placed, first tuple."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.core.states import PipelineState

if TYPE_CHECKING:
    from penstock.control.core.turn import Turn


def note_placed(turn: Turn, name: str) -> None:
    """Placed is who runs on exactly what was decided."""
    record = turn.pipelines[name]
    change = record.change
    if (
        change is not None
        and change.drained_at is not None
        and change.placed_at is None
        and record.state is PipelineState.ACTIVE
        and set(record.held) == set(record.assigned)
    ):
        turn.change(name, change=replace(change, placed_at=turn.now))
