"""`penstock.segments(...)`: which operators run fused as one segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobs.planning import segments_of
from penstock.segmentation.registry import DEFAULT_SEGMENTER

if TYPE_CHECKING:
    from penstock.jobs.find import ModelsLike, PipelineLike
    from penstock.segmentation.contract import Segmentation


def segments(
    pipeline: PipelineLike,
    *,
    segmenter: str = DEFAULT_SEGMENTER,
    rate: float = 1.0,
    models: ModelsLike = None,
) -> Segmentation:
    """Which operators run fused as one segment. `rate` matters where streams have constants or demands are declared."""
    return segments_of(pipeline, segmenter=segmenter, rate=rate, models=models)
