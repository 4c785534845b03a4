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

    def updated_with(self, other: ModelLibrary) -> ModelLibrary:
        """Both; of two models, or two profiles, with one name the other's."""
        return ModelLibrary(
            MappingProxyType({**self.models, **other.models}),
            MappingProxyType({**self.profiles, **other.profiles}),
        )

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models.values())


@cache
def reference_library() -> ModelLibrary:
    """The five reference tasks of Shukla and Simmhan and those of word count, every figure with how it is known."""
    found = []
    for name in ("reference-tasks", "workload-tasks"):
        text = (resources.files("penstock.modelling") / "data" / f"{name}.json").read_text("utf-8")
        found += parse_models(parse_json(text, name), name)
    return ModelLibrary.of(found)
