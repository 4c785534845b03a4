"""The starter project of `penstock init`."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.files import write_text

if TYPE_CHECKING:
    from pathlib import Path


def write_starter(folder: Path) -> list[Path]:
    """Copy the starter files into a new or empty folder; nothing is written where anything is in the way."""
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"{folder}: expected a folder, found a file")
    templates = sorted((resources.files("penstock") / "starter_files").iterdir(), key=lambda entry: entry.name)
    for template in templates:
        if (folder / template.name).exists():
            raise BadInputError(f"{folder / template.name}: already there; expected a folder without it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{folder}: cannot be created: {error.strerror}") from error
    written = []
    for template in templates:
        write_text(folder / template.name, template.read_text("utf-8"))
        written.append(folder / template.name)
    return written
