"""`penstock.models(...)`: models and profiles, of a file or those that come with Penstock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.jobs.find import ModelsLike, find_models

if TYPE_CHECKING:
    from penstock.modelling.library import ModelLibrary
    from penstock.modelling.model import Model


def models(models: ModelsLike = None) -> ModelLibrary:
    """The reference models, and the models and profiles of a file or folder before them."""
    return find_models(models)


def import_models(csv_file: str | Path) -> list[Model]:
    """Models from a CSV table of measurements."""
    from penstock.modelling.file import read_csv_models  # noqa: PLC0415 - a rare verb

    return read_csv_models(Path(csv_file))
