"""A log that cannot fill the disk: what repeats is counted, and the file is cut when it is long."""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import sys
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch

if TYPE_CHECKING:
    from pathlib import Path

MAX_LOG_BYTES = 5 * 1024 * 1024
"""Max bytes of the file; as much again is kept beside it, with the suffix .1."""
MAX_REPEATS = 10
"""Messages of one kind in `WINDOW_SECONDS`."""
WINDOW_SECONDS = 60.0
MAX_MESSAGES = 300
"""Max messages of all kinds together in `WINDOW_SECONDS`."""
MAX_KINDS = 200
ALL_KINDS = ("", "")
MAX_KIND_LETTERS = 80
DIGITS = re.compile(r"\d+")


class RepeatFilter(logging.Filter):
    """Passes the first messages of a kind in a minute, and with the first of a later minute how many were left out. Two
    are of one kind if they differ in digits or after their beginning; of all kinds together there is a limit too."""

    def __init__(self) -> None:
        super().__init__()
        self._watch = Stopwatch()
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        beginning = text.partition("\n")[0][:MAX_KIND_LETTERS]
        kind = (record.name, f"{error} {DIGITS.sub('', beginning)}")
        left_out, passes = self._count(kind, MAX_REPEATS)
        if passes and left_out:
            record.msg, record.args = f"{text} ({left_out} more were left out)", ()
        return passes and self._count(ALL_KINDS, MAX_MESSAGES)[1]

    def _count(self, kind: tuple[str, str], most: int) -> tuple[int, bool]:
        """Return the count left out of the last window, if this message begins a new one, and whether it passes."""
        now = self._watch.seconds()
        began, count = self._kinds.pop(kind, (now, 0))
        left_out = 0
        if now - began >= WINDOW_SECONDS:
            left_out, began, count = max(0, count - most), now, 0
        while len(self._kinds) >= MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = (began, count + 1)
        return left_out, count < most


class BoundedHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error. If that is the file `path`, it is copied and cut once it is too long: whoever else
    writes to it (a library, a crash) goes on at its new end, because it is opened to append."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self.addFilter(RepeatFilter())

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self._path is not None:
            self._cut(self._path)

    def _cut(self, path: Path) -> None:
        try:
            number = self.stream.fileno()
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode) or about.st_size <= MAX_LOG_BYTES:
                return
            if not os.path.samestat(about, path.stat()):
                return
            older = path.with_name(path.name + ".1")
            older.touch(mode=0o600)
            shutil.copyfile(path, older)
            os.truncate(path, 0)
        except (OSError, ValueError):
            return  # a full disk: the next message tries again


def log_to_stderr(path: Path | None = None) -> None:
    """All loggers of this process; `path` is the file that standard error may be."""
    handler = BoundedHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    for known in list(root.handlers):
        root.removeHandler(known)
    root.addHandler(handler)
