"""How many tuples/s an operator takes in and sends on, stream by stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.dataflow.rates import flows

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline
    from penstock.dataflow.rates import Flows


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


def traffic_of(pipeline: Pipeline, carried: Flows, rate: float) -> dict[str, Traffic]:
    """Of every operator, at the pipeline's rate."""
    inputs: dict[str, list[float]] = {name: [] for name in pipeline.operators}
    outputs: dict[str, list[float]] = {name: [] for name in pipeline.operators}
    for stream, gain in zip(pipeline.streams, carried.streams, strict=True):
        outputs[stream.sender].append(gain.at(rate))
        inputs[stream.receiver].append(gain.at(rate))
    return {
        name: Traffic(
            carried.operators[name].at(rate) if name in pipeline.sources else 0.0,
            tuple(inputs[name]),
            tuple(outputs[name]),
        )
        for name in pipeline.operators
    }


def handled_per_tuple(pipeline: Pipeline, operator: str) -> float:
    """Tuples received or sent per tuple processed; constant parts of streams, which are not per tuple, left out.

    Where a stream has `selectivities`, a tuple is the mixture of the operator's inputs at a high rate.
    """
    outputs = pipeline.outputs(operator)
    if not any(stream.selectivities for stream in outputs):
        return 1 + sum(stream.weight * stream.selectivity for stream in outputs)
    rates = flows(pipeline)
    sent = sum(
        gain.factor for stream, gain in zip(pipeline.streams, rates.streams, strict=True) if stream.sender == operator
    )
    received = rates.operators[operator].factor
    return 1 + (sent / received if received > 0 else 0.0)
