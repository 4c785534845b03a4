"""Models as a picture: what one slot can do, and what it takes, over the number of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.pictures.canvas import check_ending, own_settings, save

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.modelling.model import Model


def draw_models(models: Sequence[Model], path: Path) -> None:
    """Draw `models` side by side to `path`; the format is that of the ending."""
    check_ending(path)
    if not models:
        raise BadInputError(f"{path}: nothing to draw: no models")
    from penstock.pictures.drawing.model_charts import model_charts  # noqa: PLC0415 - needs matplotlib, an optional extra

    with own_settings():
        save(model_charts(models), path)
