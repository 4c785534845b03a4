"""Models by name: the built-in reference tasks, and what users measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.errors import BadInputError, nearest
from penstock.files import parse_json
from penstock.modelling.file import parse_models

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile


@dataclass(frozen=True)
class ModelLibrary:
    """Slot models and task profiles by name, in order; a name may have both."""

    models: Mapping[str, Model]
    profiles: Mapping[str, TaskProfile] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, models: Iterable[Model], profiles: Iterable[TaskProfile] = ()) -> ModelLibrary:
        table: dict[str, Model] = {}
        for model in models:
            if model.name in table:
                raise BadInputError(f"model '{model.name}' is given twice")
            table[model.name] = model
        costs: dict[str, TaskProfile] = {}
        for profile in profiles:
            if profile.name in costs:
                raise BadInputError(f"profile '{profile.name}' is given twice")
            costs[profile.name] = profile
        return cls(MappingProxyType(table), MappingProxyType(costs))

    def get(self, name: str, wanted_by: str = "models") -> Model:
        if name not in self.models:
            raise BadInputError(f"{wanted_by}: no model named '{name}'; {nearest(name, self.models)}")
        return self.models[name]

    def name_for(self, pipeline: str, operator: str, model: str | None) -> str:
        """The name under which what is known of an operator stands: the model it names, else that of this operator of
        this pipeline, else that of any operator called so (a reference task, or a file that does not tell them apart).
        """
        own = qualified(pipeline, operator)
        return model or (own if own in self.models else operator)

    def of_pipeline(self, pipeline: Pipeline) -> ModelLibrary:
        """Only what is known of the operators of one pipeline."""
        names = {
            self.name_for(pipeline.name, operator.name, operator.model) for operator in pipeline.operators.values()
        }
        return ModelLibrary(
            MappingProxyType({name: model for name, model in self.models.items() if name in names}),
            MappingProxyType({name: profile for name, profile in self.profiles.items() if name in names}),
        )

    def updated_with(self, other: ModelLibrary) -> ModelLibrary:
        """Both; of two models, or two profiles, with one name the other's."""
        return ModelLibrary(
            MappingProxyType({**self.models, **other.models}),
            MappingProxyType({**self.profiles, **other.profiles}),
        )

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models.values())


def qualified(pipeline: str, operator: str) -> str:
    """The model of one operator of one pipeline; names have no slash."""
    return f"{pipeline}/{operator}"


@cache
def reference_library() -> ModelLibrary:
    """The reference tasks of Shukla and Simmhan and those of built-in pipelines, every figure with how it is known."""
    measured = []
    for name in ("reference-tasks", "workload-tasks", "application-tasks"):
        text = (resources.files("penstock.modelling") / "data" / f"{name}.json").read_text("utf-8")
        measured += parse_models(parse_json(text, name), name)
    return ModelLibrary.of(measured)
