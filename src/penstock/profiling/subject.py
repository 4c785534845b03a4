"""What a profile measures: the code of a pipeline's operators, by the names their models will have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, nearest
from penstock.dataflow.formats import reading_of
from penstock.dataflow.logic import Logic, Per
from penstock.inputs.finders import PipelineLike, find_code_beside, find_pipeline, logic_of
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.library import qualified
from penstock.workloads.operators import reference_logic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import Model


@dataclass(frozen=True)
class ProfileSubject:
    """What is measured: code by the name its model will have."""

    pipeline: Pipeline
    logic: Mapping[str, Logic]
    """Of all operators, by their own names."""
    code: Mapping[str, Logic]
    operators: Mapping[str, str]
    """By the name of the model: one that has this code."""
    models: Mapping[str, str]
    """By operator: several may have the same."""

    def fingerprints(self, beside: Path | None, known: Mapping[str, Model]) -> dict[str, str]:
        """Of the code of every model, where it can be seen; that of a model that is known, where it is of this code."""
        prints = {}
        for model, code in self.code.items():
            given = None if self.is_declared(model) else code
            measured = known[model].measured_on if model in known else None
            prints[model] = fingerprint(self.pipeline.operators[self.operators[model]], given, beside, measured)
        return {model: made for model, made in prints.items() if made is not None}

    def is_declared(self, model: str) -> bool:
        """An aggregate is what it declares: the code in its place is nobody's."""
        return self.pipeline.operators[self.operators[model]].aggregate is not None

    def sampled(self, models: Iterable[str]) -> dict[str, str]:
        """Operators by model, of those for which tuples are put through the pipeline first: to see what they get, and
        what they send. The reference operators need nothing but a number, and say what they send."""
        return {m: self.operators[m] for m in models if self.code[m] is not reference_logic.get(m)}

    def own_sources(self) -> list[str]:
        """Those that are not the load generator."""
        pipeline = self.pipeline
        return [name for name in pipeline.sources if not reading_of(pipeline.operators[name]).is_load]

    def models_run_for(self, models: Iterable[str], known: Iterable[str] = ()) -> set[str]:
        """Those whose code runs when `models` are measured: all, where tuples are put through the pipeline first, or
        where with those `known` nothing is missing, so that it is run as a whole in the end."""
        measured = set(models)
        everything = {self.pipeline.operators[name].model or name for name in self.logic}
        whole = set(self.models.values()) <= {*measured, *known}
        return everything if whole or self.sampled(measured) else measured


def _no_code(frame: Any) -> Any:
    return frame


IN_THE_QUERY = Logic(_no_code, per=Per.DATAFRAME)
"""In the place of code, of what is part of the query itself: an aggregate, by what it declares."""


def subject_of(pipeline: PipelineLike, operators: list[str] | None) -> ProfileSubject:
    """Only that of `operators`, where some are named."""
    find_code_beside(pipeline)
    declared = find_pipeline(pipeline)
    logic = logic_of(declared)
    declared_only = [name for name, operator in declared.operators.items() if operator.aggregate is not None]
    measured = {**logic, **dict.fromkeys(declared_only, IN_THE_QUERY)}
    models = {name: declared.operators[name].model or _own_model(declared, name, measured[name]) for name in measured}
    by_model = {model: name for name, model in models.items()}
    if not by_model:
        raise BadInputError(f"pipeline '{declared.name}' has no operator with code to measure")
    for name in operators or ():
        if name not in {*by_model, *models}:
            raise BadInputError(f"unknown operator or model '{name}'; {nearest(name, [*models, *by_model])}")
    asked = {models.get(name, name) for name in operators or by_model}
    code = {model: measured[name] for model, name in by_model.items() if model in asked}
    return ProfileSubject(declared, logic, code, by_model, models)


def _own_model(pipeline: Pipeline, operator: str, code: Logic) -> str:
    """A reference task is the same in every pipeline; other code is that of this operator of this pipeline alone."""
    return operator if code is reference_logic.get(operator) else qualified(pipeline.name, operator)
