"""`python -P -m penstock.service.what_if_process`: answers what-if questions of its parent, one after the other, and
ends with its standard input."""

from __future__ import annotations

import json
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.errors import BadInputError, PenstockError
from penstock.service.pages.outcome import answer
from penstock.service.what_if_lane import LENGTH_BYTES, REFUSED

if TYPE_CHECKING:
    from penstock.control.core.sizing import Sizing

NICENESS = 10
"""The controller comes first."""


def read(source: BinaryIO) -> Any:
    """The next value of the parent; None at the end."""
    length = source.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    return pickle.loads(source.read(int.from_bytes(length, "big")))  # noqa: S301 - our parent's, over a pipe


def main() -> int:
    os.nice(NICENESS)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # what user code prints while it is asked must not stand among answers
    os.dup2(2, 1)
    sizing: Sizing = read(source)
    while (asked := read(source)) is not None:
        state, question, now = asked
        try:
            document = answer(state, sizing, question, now)
        except PenstockError as error:
            document = {REFUSED: str(error), "bad_input": isinstance(error, BadInputError)}
        data = json.dumps(document).encode()
        target.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        target.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
