"""What a profile measures: the code of a pipeline's operators, and its files, by the names their models will have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.dataflow.endpoints import file_end
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.rates import flows
from penstock.errors import BadInputError, nearest
from penstock.jobs.find import PipelineLike, find_code_beside, find_pipeline, logic_of
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.library import qualified
from penstock.workloads.operators import reference_logic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from penstock.dataflow.pipeline import Pipeline


@dataclass(frozen=True)
class ProfileSubject:
    """What is measured: code by the name its model will have."""

    pipeline: Pipeline
    logic: Mapping[str, Logic]
    """Of all operators, by their own names."""
    code: Mapping[str, Logic]
    operators: Mapping[str, str]
    """By the name of the model: one that has this code."""

    ends: Mapping[str, str]
    """By the name of the model: sources and sinks that are files, which take time to read and write."""

    def fingerprints(self, beside: Path | None) -> dict[str, str]:
        """Of the code of every model, where it can be seen, and of how files are read and written."""
        prints = {
            model: fingerprint(
                self.pipeline.operators[self.operators[model]], None if self.is_declared(model) else code, beside
            )
            for model, code in self.code.items()
        }
        prints |= {model: fingerprint(self.pipeline.operators[name]) for model, name in self.ends.items()}
        return {model: fingerprint for model, fingerprint in prints.items() if fingerprint is not None}

    def is_declared(self, model: str) -> bool:
        """An aggregate is what it declares: the code in its place is nobody's."""
        return self.pipeline.operators[self.operators[model]].aggregate is not None

    def sampled(self, models: Iterable[str]) -> dict[str, str]:
        """Operators by model, of those for which tuples are put through the pipeline first: to see what they get, and
        what they send. The reference operators need nothing but a number, and say what they send."""
        return {m: self.operators[m] for m in models if self.code[m] is not reference_logic.get(m)}

    def rows_leaving_slots(self) -> float:
        """For a tuple of the source: what code sends to sinks, and to what is part of the query itself."""
        code = {name for name, logic in self.logic.items() if logic.per is not Per.DATAFRAME}
        carried = flows(self.pipeline).streams
        return sum(
            gain.factor
            for stream, gain in zip(self.pipeline.streams, carried, strict=True)
            if stream.sender in code and stream.receiver not in code
        )

    def rows_entering_from_query(self) -> dict[str, float]:
        """By operator with code that reads what is part of the query itself: how many come, for a tuple of the source.
        None where other code comes before, which tuples reach as the source made them."""
        code = {name for name, logic in self.logic.items() if logic.per is not Per.DATAFRAME}
        entered = {stream.receiver: stream.sender for stream in self.pipeline.streams if stream.receiver in code}
        if any(sender in self.pipeline.sources for sender in entered.values()):
            return {}
        gains = flows(self.pipeline).operators
        return {name: gains[name].factor for name, sender in entered.items() if sender not in code}

    def models_run_for(self, models: Iterable[str]) -> set[str]:
        """Those whose code runs when `models` are measured: where tuples are put through the pipeline, all. They are
        for a sink, too."""
        measured = set(models)
        everything = {self.pipeline.operators[name].model or name for name in self.logic}
        return everything if self.ends or self.sampled(measured) else measured


def _no_code(frame: Any) -> Any:
    return frame


IN_THE_QUERY = Logic(_no_code, per=Per.DATAFRAME)
"""In the place of code, of what is part of the query itself: an aggregate by what it declares, a source, a sink."""


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
    files = [name for name, operator in declared.operators.items() if file_end(operator) is not None]
    ends = {qualified(declared.name, name): name for name in files}
    models |= {name: model for model, name in ends.items()}
    for name in operators or ():
        if name not in {*by_model, *models, *ends}:
            raise BadInputError(f"unknown operator or model '{name}'; {nearest(name, [*models, *by_model])}")
    asked = {models.get(name, name) for name in operators or (*by_model, *ends)}
    code = {model: measured[name] for model, name in by_model.items() if model in asked}
    return ProfileSubject(declared, logic, code, by_model, {m: name for m, name in ends.items() if m in asked})


def _own_model(pipeline: Pipeline, operator: str, code: Logic) -> str:
    """A reference task is the same in every pipeline; other code is that of this operator of this pipeline alone."""
    return operator if code is reference_logic.get(operator) else qualified(pipeline.name, operator)
