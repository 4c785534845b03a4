"""A sign in the run's folder that a source waits for a log that is away.

Spark sees a source that has nothing new. Whoever goes by a run's figures has to tell that from a stream that stopped.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)
_BEGINS = "away-"


class AwaySign:
    """Of one source; without a folder nobody looks."""

    def __init__(self, folder: Path | None, source: str) -> None:
        self._file = None if folder is None else folder / f"{_BEGINS}{sha256(source.encode()).hexdigest()[:8]}"
        self._shows: bool | None = None
        """None: one that a process before left may be there."""

    def show(self) -> None:
        self._turn(shows=True)

    def take_away(self) -> None:
        self._turn(shows=False)

    def _turn(self, *, shows: bool) -> None:
        if self._file is None or self._shows is shows:
            return
        try:
            if shows:
                self._file.touch()
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("%s: %s", self._file, error.strerror or error)  # a full disk must not end what waits
            return
        self._shows = shows


def is_source_away(folder: Path) -> bool:
    return any(folder.glob(f"{_BEGINS}*"))
