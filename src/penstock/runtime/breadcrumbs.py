"""Finding the row that kills its worker (os._exit, a crash in C, out of memory).

Before every call its operator and row are written to a small file. It outlives the process: what was written is with
the kernel. The next attempt reads whom the last one was calling, and puts that row aside without calling.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInputError
from penstock.files import parse_json, read_text, write_text
from penstock.runtime.batch import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.runtime.batch import Marks

_SIZE = 2048
KILLED = "killed its worker"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Crumb:
    """One call: of an operator's code on one row, known by its id and path, else by how many the operator got before
    it (rows come in the same order when a task is run again)."""

    operator: str
    id: int | None
    path: int
    before: int | None


class Breadcrumbs:
    """Written by one thread. `poisoned` are the rows that killed earlier attempts."""

    def __init__(self, file: Path, poisoned: frozenset[Crumb] = frozenset()) -> None:
        self._poisoned = poisoned
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        self._got: dict[str, int] = {}

    def drop(self, operator: str, marks: Marks, at: int) -> str | None:
        """Notes that the row at `at` is called next. The error to put it aside with, if it must not be."""
        before = self._got.get(operator, 0)
        self._got[operator] = before + 1
        if marks.ids is None or marks.ids[at] == UNTRACED:
            crumb = Crumb(operator, None, 0, before)
        else:
            crumb = Crumb(operator, int(marks.ids[at]), 0 if marks.path is None else int(marks.path[at]), None)
        if crumb in self._poisoned:
            return KILLED
        self._write(json.dumps([crumb.operator, crumb.id, crumb.path, crumb.before], ensure_ascii=False))
        return None

    def sweep(self) -> None:
        """No call is under way: whoever dies now did not die of a row."""
        self._write("")

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, text: str) -> None:
        os.pwrite(self._descriptor, text.encode().ljust(_SIZE), 0)


def read_crumb(file: Path) -> Crumb | None:
    """Whom the process that wrote `file` was calling when it died; None: nobody."""
    if not file.exists():
        return None
    try:
        text = read_text(file).strip()
        return _crumb(parse_json(text, str(file)), file) if text else None
    except BadInputError as error:
        _LOG.warning("%s; who was called last is not known", error)
        return None


def read_crumbs(file: Path) -> list[Crumb]:
    """Those that were written down before; none where nobody can read them: they are found again."""
    if not file.exists():
        return []
    try:
        rows = parse_json(read_text(file), str(file))
        if not isinstance(rows, list):
            raise BadInputError(f"{file}: expected a list of calls, found {type(rows).__name__}")
        return [_crumb(row, file) for row in rows]
    except BadInputError as error:
        _LOG.warning("%s; rows that killed earlier attempts are not known", error)
        return []


def write_crumbs(file: Path, crumbs: Sequence[Crumb]) -> None:
    write_text(file, json.dumps([astuple(crumb) for crumb in crumbs]))


def _crumb(row: Any, file: Path) -> Crumb:
    match row:
        case [str(operator), int() | None as id_, int(path), int() | None as before]:
            return Crumb(operator, id_, path, before)
    raise BadInputError(f"{file}: expected a call as [operator, id, path, rows before it]")
