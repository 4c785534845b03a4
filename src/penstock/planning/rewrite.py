"""A pipeline rewritten before it is planned: heavy operators separated, busy streams fused away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.dataflow.pipeline import Kind, Pipeline, checked_rate, flows
from penstock.dataflow.rewrite import What, fuse_busy, separate_heavy
from penstock.modelling.fusion import fused_model
from penstock.modelling.library import ModelLibrary, demands_of
from penstock.modelling.model import Model
from penstock.planning.segmentation import costs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.dataflow.pipeline import Operator
    from penstock.dataflow.rewrite import RewriteStep

DEFAULT_FACTOR = 4.0


@dataclass(frozen=True)
class RewrittenPipeline:
    """The new pipeline, the models of its fused operators, and what was done."""

    pipeline: Pipeline
    models: ModelLibrary
    done: tuple[RewriteStep, ...]


def rewrite(pipeline: Pipeline, library: ModelLibrary, rate: float, heavier: float, busier: float) -> RewrittenPipeline:
    """Separate operators with more than `heavier` times the median load of the others, then fuse the ends of streams
    with more than `busier` times the median traffic of the others, at `rate` tuples/s."""
    checked_rate(rate)
    for what, factor in (("heavier", heavier), ("busier", busier)):
        if not factor >= 1:
            raise BadInputError(f"{what}: expected a factor of at least 1, found {factor:g}")
    pipeline = _as_measured(pipeline, library)
    separated = separate_heavy(pipeline, costs_of(pipeline, library, rate).computing, heavier)
    fused = fuse_busy(separated.pipeline, rate, busier)
    models = ModelLibrary.of(_fused_models(separated.pipeline, fused.pipeline, fused.done, library, rate))
    return RewrittenPipeline(fused.pipeline, models, (*separated.done, *fused.done))


def _as_measured(pipeline: Pipeline, library: ModelLibrary) -> Pipeline:
    """With the names of models of this pipeline's own, which its parts keep under other names; and with `per` as it was
    measured, of operators whose code is named and nothing is said beside it: their code is not imported to be asked."""

    def known(operator: Operator) -> Operator:
        name = library.name_for(pipeline.name, operator.name, operator.model)
        model = library.models.get(name)
        if operator.kind is not Kind.OPERATOR or model is None or operator.is_declared:
            return operator
        unsaid = operator.run is not None and operator.per is None
        named = {} if name == operator.name else {"model": name}
        return operator.model_copy(update={**named, **({"per": model.measured_on.per} if unsaid else {})})

    operators = [known(operator) for operator in pipeline.operators.values()]
    return Pipeline.of(pipeline.name, operators, pipeline.streams, pipeline.constraints)


def _fused_models(
    before: Pipeline, after: Pipeline, done: Iterable[RewriteStep], library: ModelLibrary, rate: float
) -> Iterator[Model]:
    demands = demands_of(before, library)
    old, new = flows(before).operators, flows(after).operators
    for step in done:
        if step.what is not What.FUSED or after.operators[step.into[0]].is_declared:
            continue
        entering = new[step.into[0]].at(rate)
        parts = []
        for name in step.operators:
            demand = demands[name]
            if isinstance(demand, Model):
                parts.append((demand, old[name].at(rate) / entering if entering > 0 else 0.0))
        yield fused_model(step.into[0], parts)
