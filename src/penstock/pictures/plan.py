"""A plan as a picture: racks, nodes and slots, who sits where, and how full each slot will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pictures.canvas import check_ending, own_settings, save

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.planning.plan import Plan


def draw_plan(plan: Plan, path: Path) -> None:
    """Draw `plan` to `path`; the format is that of the ending."""
    check_ending(path)
    from penstock.pictures.drawing.plan_page import plan_page  # noqa: PLC0415 - needs matplotlib, an optional extra

    with own_settings():
        save(plan_page(plan), path)
