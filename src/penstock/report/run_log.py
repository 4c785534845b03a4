"""The log of a run, kept in its folder: what was done when, for whoever asks afterwards."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN_LOG = "run.log"


@contextmanager
def run_log(folder: Path) -> Iterator[Path]:
    """What `penstock.*` logs inside the block goes to the end of a file in `folder`, readable by its owner alone.

    Everything from "info" on: the log of a run is looked at when something went wrong that nobody expected. Two runs
    in one process at the same time find each other's lines in both files.
    """
    path = folder / RUN_LOG
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("penstock")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(before or logging.INFO, logging.INFO))
    try:
        yield path
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
        handler.close()
