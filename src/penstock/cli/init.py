"""`penstock init`: a starter project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
) -> None:
    """Write a starter project: a pipeline, a cluster, and the commands to try."""
    from penstock import api

    for path in api.init(folder):
        typer.echo(f"wrote {path}")
    typer.echo(f"next: cd {folder} && penstock plan pipeline.yaml --rate 200")
