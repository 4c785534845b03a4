"""Reference pipelines and clusters by name, so that the first command works without a file."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.base.files import Weight, parse_yaml
from penstock.base.registry import with_options
from penstock.dataflow.code import parse_pipeline
from penstock.dataflow.pipeline import Kind, Pipeline

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Operator


# 003's micro pipelines with other operators, as their names say: `micro-star:bound=memory,selectivity=2`.


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


MICRO_SHAPES = ("micro-linear", "micro-diamond", "micro-star")
"""Built-in pipelines that take options."""


def known_pipelines() -> list[str]:
    folder = resources.files("penstock.workloads") / "pipelines"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def builtin_pipeline(name: str) -> Pipeline:
    text = (resources.files("penstock.workloads") / "pipelines" / f"{name}.yaml").read_text("utf-8")
    return parse_pipeline(parse_yaml(text, name), name)


def has_options(name: str) -> bool:
    """`micro-linear:bound=io`; a hyphen stands in no name of a module."""
    return ":" in name and name.partition(":")[0] in MICRO_SHAPES


def builtin_with_options(name: str) -> Pipeline:
    """A built-in pipeline as its options (`NAME:option=value,option=value`) change it."""
    shape, _, options = name.partition(":")
    return with_options(MicroOptions, f"pipeline '{shape}'", options).applied_to(builtin_pipeline(shape))


def known_clusters() -> list[str]:
    """Whole clusters for `place`."""
    folder = resources.files("penstock.workloads") / "clusters"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".json"))


def builtin_cluster_path(name: str) -> Path:
    return Path(str(resources.files("penstock.workloads") / "clusters" / f"{name}.json"))
