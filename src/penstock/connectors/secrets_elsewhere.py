"""Secrets that a pipeline only says the place of, looked up by whoever makes a client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.dataflow.known_secrets import remember
from penstock.dataflow.secret_options import FILE, secret_elsewhere
from penstock.errors import BadInputError
from penstock.files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def looked_up(option: str, place: str, who: str) -> str:
    """`option` ends in `.env` or `.file`, and `place` is the variable or the path."""
    if option.lower().endswith(f".{FILE}"):
        return remember(read_text(Path(place)).strip())
    value = os.environ.get(place)
    if value is None:
        raise BadInputError(f"{who}: option {option}: the environment has no {place}")
    return remember(value)


def with_secrets(options: Mapping[str, str], who: str) -> dict[str, str]:
    """Options of any format but Kafka's, each secret under its own name. The driver calls it when a run starts."""
    filled: dict[str, str] = {}
    for option, value in options.items():
        elsewhere = secret_elsewhere(option)
        filled.update({option: value} if elsewhere is None else {elsewhere[0]: looked_up(option, value, who)})
    return filled
