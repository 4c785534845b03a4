"""Runs in processes of their own, for tests that kill them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

import penstock
from penstock.base.clock import Stopwatch, pause

PATIENCE_SECONDS = 300.0


def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    waited = Stopwatch()
    while not condition():
        assert waited.seconds() < seconds, "it did not come about"
        pause(0.1)


def environment_for(folder: Path) -> dict[str, str]:
    """Modules in `folder` are found; runs and clusters are the test's own."""
    source = Path(penstock.__file__).parent.parent
    own = {"PENSTOCK_RUNS": str(folder / "runs"), "PENSTOCK_STATE": str(folder / "state")}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join([str(source), str(folder)])}


@contextmanager
def command(environment: dict[str, str], *words: str, folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, in `folder`, which ends with the block whatever happens."""
    line = [sys.executable, "-m", "penstock", *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(line, env=environment, text=True, stdout=pipe, stderr=pipe, cwd=folder)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def flowed(process: subprocess.Popen[str], folder: Path, more: int) -> None:
    """Until `process` has put so many more batches into the Parquet sink at `folder`."""
    before = len(batches_in(folder))
    until(lambda: len(batches_in(folder)) >= before + more or process.poll() is not None)
    assert process.poll() is None, process.communicate()[1]


def batches_in(folder: Path) -> set[str]:
    return {file.name.rpartition("-")[0] for file in folder.glob("part-*.parquet")}


def rows_in(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("part-*.parquet"))
