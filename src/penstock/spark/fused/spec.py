"""What a fused query is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.report.report import MOST_DEAD

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline


@dataclass(frozen=True)
class FusedSpec:
    """What to run and how. `threads` are those of each operator in ONE slot."""

    run: str
    """Names the run for good, in files and tables of sinks too."""
    pipeline: Pipeline
    code: Mapping[str, Logic]
    threads: Mapping[str, int]
    slots: int
    folder: Path
    """Of the run, on this machine."""
    checkpoint: str
    """Where Spark keeps its own: reached by the driver and every executor."""
    load: Load | None = None
    most_rows: int = 1_000_000
    """The most tuples of the load one batch takes in, over all slots."""
    batch_seconds: float | None = None
    """Where given, `most_rows` is only the beginning: batches are resized to hold so many seconds of work."""
    interval_ms: int = 100
    environment: Mapping[str, str] = field(default_factory=dict)
    audit: bool = False
    dead_letters: str | None = None
    """A folder for dead letters, as JSON."""
    most_dead: float = MOST_DEAD
    """The part of all tuples that may die: above it a run that has no end is ended."""
    until_end: bool = False
    """Take in what is there, and end."""
    close_windows: bool = False
    """With `until_end`: nobody will go on with the run, so what is still open in the end is sent on as it is."""
