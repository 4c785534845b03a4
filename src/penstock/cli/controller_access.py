"""Open a client of the controller: by the address and token given, or those of `penstock controller up`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output

if TYPE_CHECKING:
    from penstock.service.client import Client

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline, by the name it was submitted under.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", help="The controller; without, PENSTOCK_URL, or the one `penstock controller up` started here."
    ),
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", help="File with its token; without, that of `penstock controller up`.")
]


def warn_of_trouble(client: Client) -> None:
    """On standard error, so that what a command prints stays as it is."""
    health = client.health()
    if health.get("trouble"):
        output.complain(f"warning: the controller is in trouble, nothing new is decided: {health['trouble']}")
    for entry in health.get("quarantined", ()):
        output.complain(f"warning: set aside: {entry['subject']}: {entry['why']}")


def controller(url: str | None, token_file: Path | None) -> Client:
    from penstock.api.live import connect
    from penstock.base.files import read_text

    where = url or os.environ.get("PENSTOCK_URL")
    if where is not None and token_file is None:
        raise BadInputError("--url: give the token of that controller too: --token-file FILE")
    return connect(where, None if token_file is None else read_text(token_file).strip())
