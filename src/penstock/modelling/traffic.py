"""How many tuples/s an operator takes in and sends on, stream by stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline, Stream


class Traffic(NamedTuple):
    """Tuples/s of one operator: from outside (a source's), over its input streams, over its output streams."""

    ingest: float
    inputs: tuple[float, ...]
    outputs: tuple[float, ...]

    @property
    def received(self) -> float:
        """What is processed."""
        return self.ingest + sum(self.inputs)

    @property
    def moved(self) -> float:
        """What crosses to other nodes where nothing is co-located; ingest comes from outside in any case."""
        return sum(self.inputs) + sum(self.outputs)


def stream_rate(stream: Stream, rates: Mapping[str, float]) -> float:
    """`selectivity * in + constant`, by the input rate of every operator."""
    return stream.selectivity * rates[stream.sender] + stream.constant


def traffic_of(pipeline: Pipeline, operator: str, rates: Mapping[str, float]) -> Traffic:
    """Of one operator, by the input rate of every operator."""
    return Traffic(
        rates[operator] if operator in pipeline.sources else 0.0,
        tuple(stream_rate(stream, rates) for stream in pipeline.inputs(operator)),
        tuple(stream_rate(stream, rates) for stream in pipeline.outputs(operator)),
    )


def handled_per_tuple(pipeline: Pipeline, operator: str) -> float:
    """Tuples received or sent per tuple processed; constant parts of streams, which are not per tuple, left out."""
    return 1 + sum(stream.selectivity for stream in pipeline.outputs(operator))
