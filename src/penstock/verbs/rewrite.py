"""`penstock.rewrite(...)`: a pipeline whose operators are separated and fused to fit slots."""

from __future__ import annotations

from penstock.jobs.find import ModelsLike, PipelineLike, find_models, find_pipeline
from penstock.planning.rewriting import DEFAULT_FACTOR, RewrittenPipeline
from penstock.planning.rewriting import rewrite as rewrite_pipeline


def rewrite(
    pipeline: PipelineLike,
    rate: float,
    *,
    heavier: float = DEFAULT_FACTOR,
    busier: float = DEFAULT_FACTOR,
    models: ModelsLike = None,
) -> RewrittenPipeline:
    """Operators with `heavier` times the median load separated, streams with `busier` times the median bytes fused."""
    return rewrite_pipeline(find_pipeline(pipeline), find_models(models), rate, heavier, busier)
