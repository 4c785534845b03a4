"""What Penstock logs under `penstock.*`, on standard error while a command runs: nothing, unless asked for."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.dataflow.known_secrets import redact
from penstock.errors import BadInputError, nearest, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(redact(super().format(record)), keep="\n")


@contextmanager
def log_on_stderr(asked: str | None, variable: str | None) -> Iterator[None]:
    """`variable`: what PENSTOCK_LOG says, which goes before `asked`."""
    level = (variable or asked or "").lower()
    if not level:
        yield
        return
    if level not in LEVELS:
        raise BadInputError(f"PENSTOCK_LOG: unknown level '{level}'; {nearest(level, LEVELS)}")
    logger = logging.getLogger("penstock")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(LEVELS[level])
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
