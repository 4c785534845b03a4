"""Arguments and options that several verbs share. Names of policies come from the registries when a command runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

PipelineArgument = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="A built-in pipeline (linear, diamond, star, ...), a file (.yaml, .json), or module:attribute.",
    ),
]
ModelsOption = Annotated[
    Path | None,
    typer.Option("--models", help="Model file or folder; the reference models stay known beside it."),
]
SecretFileOption = Annotated[
    Path | None,
    typer.Option("--secret-file", help="The secret of the cluster at --master; that of `cluster up` is known."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


# Options of all commands that open the controller's store.


STORE_VARIABLE = "PENSTOCK_STORE"
"""Environment variable with the URL of the store."""

StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Database: sqlite:///FILE or postgresql+psycopg://...; without, a file."),
]
StoreFileOption = Annotated[
    Path | None,
    typer.Option("--store-file", help="File with the URL of the database: for one with a password."),
]
TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take the store from a controller of another folder or host, or from one that still runs: it can write no "
        "more. End its drivers first.",
    ),
]


def store_url(store: str | None, store_file: Path | None) -> str | None:
    """The URL given by the options, else by the environment; None: the default."""
    if store is None and store_file is None:
        return os.environ.get(STORE_VARIABLE) or None
    from penstock.control.store.database import url_from_options

    return url_from_options(store, store_file, f"set {STORE_VARIABLE}")
