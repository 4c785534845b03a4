"""Models with round numbers, so that a test can show the arithmetic of its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import Model, Point

if TYPE_CHECKING:
    from collections.abc import Mapping


def flat_model(name: str, rate: float, *, cpu: float = 1.0, memory: float = 0.1) -> Model:
    """Return a model of an operator that does `rate` rows/s in one slot with one thread, and no more with several.

    `cpu` and `memory` are parts of the slot at that rate.
    """
    return Model(name, (Point(threads=1, rate=rate, cpu=cpu, memory=memory),))


def flat_models(rates: Mapping[str, float], *, cpu: float = 1.0, memory: float = 0.1) -> ModelLibrary:
    """Return a library with a flat model for each name and rate, for `penstock.plan(..., models=...)`."""
    return ModelLibrary.of(flat_model(name, rate, cpu=cpu, memory=memory) for name, rate in rates.items())
