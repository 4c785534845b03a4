"""Numbers that a run leaves in its folder, for a source that reads them before every batch."""

from __future__ import annotations

import logging
from math import isfinite
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.files import quoted, read_text

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)


class KeptNumbers:
    """Numbers in files. A file that holds no number (empty, truncated, of another program) is one line in the log, and
    the last number read from it still holds: a running run continues."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._last: dict[str, float] = {}

    def get(self, name: str) -> float | None:
        """Return the number, or None if there is no such file. Raise `BadInputError` if it never held a number."""
        file = None if self._folder is None else self._folder / name
        if file is None or not file.exists():
            return None
        try:
            self._last[name] = read_number(file)
        except BadInputError as error:
            if name not in self._last:
                raise
            _LOG.warning("%s; %g, as before, counts", error, self._last[name])
        return self._last[name]

    def whole(self, name: str, otherwise: int) -> int:
        """Return the number; `otherwise` if there is no such file, or if it never held a number."""
        try:
            number = self.get(name)
        except BadInputError as error:
            _LOG.warning("%s; %d counts", error, otherwise)
            return otherwise
        return otherwise if number is None else int(number)


def read_number(file: Path) -> float:
    """At least 0; a whole one is exact, however large."""
    text = read_text(file).strip()
    try:
        number = int(text) if text.isascii() and text.isdecimal() else float(text)
    except ValueError:
        number = -1.0
    if not (isfinite(number) and number >= 0):
        raise BadInputError(f"{file}: expected a number of at least 0, found '{quoted(text)}'")
    return number
