"""003's micro pipelines with other operators, as their names say: `micro-star:bound=memory,selectivity=2`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.dataflow.pipeline import Kind, Pipeline
from penstock.registry import Weight  # noqa: TC001 - options are checked by their annotations at run time

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Operator

CODE = "penstock.workloads.applications.micro:"
MODELS = {
    "cpu": "micro-diamond/cpu",
    "io": "micro-diamond/io",
    "sojourn": "micro-diamond/sojourn",
    "memory": "micro-diamond/memory",
}
"""That of the shipped models which measured the same code."""


@dataclass(frozen=True)
class MicroOptions:
    bound: Literal["cpu", "io", "sojourn", "memory"] | None = None
    """What all operators are bound by; where it is not said, each keeps its own."""
    selectivity: Weight = 1.0
    """Tuples that every operator sends for one that it gets."""

    def applied_to(self, shape: Pipeline) -> Pipeline:
        operators = [self._operator(operator, place) for place, operator in enumerate(shape.operators.values())]
        senders = {operator.name for operator in operators if operator.kind is Kind.OPERATOR}
        streams = [
            stream.model_copy(update={"selectivity": self.selectivity}) if stream.sender in senders else stream
            for stream in shape.streams
        ]
        return Pipeline.of(self._name(shape.name), operators, streams, shape.constraints)

    def _operator(self, operator: Operator, place: int) -> Operator:
        if operator.kind is not Kind.OPERATOR:
            return operator
        kind = self.bound or str(operator.run).removeprefix(CODE)
        times = "" if self.selectivity == 1 else f"*{self.selectivity!r}@{place}"
        return operator.model_copy(update={"run": f"{CODE}{kind}{times}", "model": MODELS[kind]})

    def _name(self, shape: str) -> str:
        parts = [
            shape,
            *([self.bound] if self.bound else []),
            *([f"{self.selectivity:g}"] if self.selectivity != 1 else []),
        ]
        return "-".join(parts)
