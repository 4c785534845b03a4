"""`penstock.init(...)`: a starter project."""

from __future__ import annotations

from pathlib import Path

from penstock.inputs.starter import write_starter


def init(folder: str | Path) -> list[Path]:
    """A starter project in a new or empty folder: the files written."""
    return write_starter(Path(folder))
