"""Models whose tuples cost more than was profiled. An operator that shares its model with others of the pipeline
raises it for all of them: the highest factor counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.modelling.library import ModelLibrary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile


def costlier(library: ModelLibrary, pipeline: Pipeline, factors: Mapping[str, float]) -> ModelLibrary:
    by_model: dict[str, float] = {}
    for name, operator in pipeline.operators.items():
        model = library.name_for(pipeline.name, name, operator.model)
        by_model[model] = max(by_model.get(model, 0.0), factors.get(name, 1.0))
    return ModelLibrary.of(
        [_slower(model, by_model.get(model.name, 1.0)) for model in library.models.values()],
        [_dearer(profile, by_model.get(profile.name, 1.0)) for profile in library.profiles.values()],
    )


def _slower(model: Model, factor: float) -> Model:
    """I(t) / factor; CPU and memory at the peak are the same, so a tuple takes factor times as much of both."""
    points = tuple(
        point.model_copy(
            update={
                "rate": point.rate / factor,
                "rate_spread": None if point.rate_spread is None else point.rate_spread / factor,
            }
        )
        for point in model.points
    )
    return replace(model, points=points)


def _dearer(profile: TaskProfile, factor: float) -> TaskProfile:
    return profile.model_copy(
        update={
            "sojourn_seconds": profile.sojourn_seconds * factor,
            "processing_cpu": profile.processing_cpu * factor,
            "moving_cpu": profile.moving_cpu * factor,
        }
    )
