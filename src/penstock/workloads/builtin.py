"""Reference pipelines and clusters by name, so that the first command works without a file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.dataflow.file import parse_pipeline
from penstock.files import parse_yaml
from penstock.registry import with_options
from penstock.workloads.applications.micro_options import MicroOptions

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline

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
