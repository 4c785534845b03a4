"""The services that code of reference tasks needs, while a pipeline runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.report.listener import Listener, Progress
from penstock.workloads.operators import services

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from penstock.dataflow.pipeline import Pipeline


def services_of(pipeline: Pipeline, listener: Listener) -> AbstractContextManager[Mapping[str, str]]:
    """Those of all its operators, and the environment their code finds them by."""
    return services_for({operator.model or name for name, operator in pipeline.operators.items()}, listener)


def services_for(models: Iterable[str], listener: Listener) -> AbstractContextManager[Mapping[str, str]]:
    """Those of the reference tasks that are named."""

    def building(rows: int, of: int) -> None:
        listener.on_progress(Progress(f"building the reference table, once: {rows:,} of {of:,} rows", rows, of))

    return services(set(models), given=os.environ, progress=building)
