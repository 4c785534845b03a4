"""Reference pipelines and clusters by name, so that the first command works without a file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.dataflow.file import parse_pipeline
from penstock.files import parse_yaml

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline


def known_pipelines() -> list[str]:
    folder = resources.files("penstock.workloads") / "pipelines"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def builtin_pipeline(name: str) -> Pipeline:
    text = (resources.files("penstock.workloads") / "pipelines" / f"{name}.yaml").read_text("utf-8")
    return parse_pipeline(parse_yaml(text, name), name)


def known_clusters() -> list[str]:
    """Whole clusters for `place`."""
    folder = resources.files("penstock.workloads") / "clusters"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".json"))


def builtin_cluster_path(name: str) -> Path:
    return Path(str(resources.files("penstock.workloads") / "clusters" / f"{name}.json"))
