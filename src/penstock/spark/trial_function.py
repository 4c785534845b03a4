"""What runs in the worker of a trial: the operator that is on trial, with the threads the setting names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from penstock.files import write_text
from penstock.spark.fused_function import FusedFunction
from penstock.spark.segment import Step
from penstock.spark.trial_source import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from penstock.dataflow.logic import Logic

SINK = "sink of trial"

_introduced: set[str] = set()
"""Folders in which this worker process has said who it is."""


def packed(logic: Mapping[str, Logic]) -> tuple[tuple[str, bytes], ...]:
    """The code of every operator by name. A worker unpacks the one on trial and imports nothing for the others."""
    return tuple((name, cloudpickle.dumps(code)) for name, code in logic.items())  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class TrialFunction:
    """For `DataFrame.mapInArrow`: the same function a fused run uses, with one operator."""

    folder: str
    code: tuple[tuple[str, bytes], ...]
    environment: tuple[tuple[str, str], ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _introduce(self.folder)
        setting = Setting.read(Path(self.folder))
        logic: Logic = cloudpickle.loads(dict(self.code)[setting.operator])
        steps = (
            Step(setting.operator, logic, setting.threads, ((-1, 0),)),
            Step(SINK, None, 1, ((0, 0),)),
        )
        run = f"{self.folder}, {setting.operator} with {setting.threads}"
        return FusedFunction(run, steps, self.environment)(batches)


def _introduce(folder: str) -> None:
    """Say which process has the operator on trial: it is watched from outside."""
    if folder not in _introduced:
        _introduced.add(folder)
        write_text(Path(folder) / "worker", str(os.getpid()))
