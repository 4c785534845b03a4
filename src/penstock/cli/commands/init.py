"""`penstock init`: a starter project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty one; default: this one.")] = Path(),
) -> None:
    """Write a starter project: a pipeline with code of its own, data, a cluster, and the commands to try."""
    from penstock.api.starter import init as write_project

    written = write_project(folder)
    data = [path for path in written if path.parent.name == "data"]
    for path in written:
        if path not in data:
            output.say(f"wrote {path}")
    output.say(f"wrote {len(data)} files of orders in {folder / 'data'}")
    there = "" if folder == Path() else f"cd {folder} && "
    output.say(f"next: {there}penstock profile orders:pipeline --quick -o models.json")
