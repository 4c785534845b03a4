"""Arguments and options that several verbs share. Names of policies come from the registries when a command runs."""

from __future__ import annotations

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
