"""What runs in the worker of a trial: the operator that is on trial, with the threads the setting names."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from penstock.files import write_text
from penstock.spark.fused_function import FusedFunction, numbers_only
from penstock.spark.samples import repeated
from penstock.spark.segment import Step
from penstock.spark.trial_source import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
        fields = _fields(self.folder, setting.operator)
        return FusedFunction(run, steps, self.environment, fields=fields)(batches)


_fields_of: dict[tuple[str, str], Callable[[int], dict[str, Any]]] = {}
"""What tuples hold, of the operator this worker has on trial."""


def write_samples(folder: Path, samples: Mapping[str, bytes]) -> None:
    """For workers to find; each unpickles only that of its operator."""
    (folder / "samples").write_bytes(pickle.dumps(dict(samples)))


def _fields(folder: str, operator: str) -> Callable[[int], dict[str, Any]]:
    key = (folder, operator)
    if key not in _fields_of:
        _fields_of.clear()
        # written by this program, into a folder nobody else may enter
        samples = cloudpickle.loads((Path(folder) / "samples").read_bytes())
        _fields_of[key] = repeated(cloudpickle.loads(samples[operator])) if operator in samples else numbers_only
    return _fields_of[key]


def _introduce(folder: str) -> None:
    """Say which process has the operator on trial: it is watched from outside."""
    if folder not in _introduced:
        _introduced.add(folder)
        write_text(Path(folder) / "worker", str(os.getpid()))
