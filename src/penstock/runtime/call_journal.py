"""Find the row that kills its worker (os._exit, a crash in C, out of memory).

Before every call its operator and row are written to a small file, which outlives the process. The next attempt reads
the last call of the one before, and makes that row a dead letter without calling the code.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from dataclasses import astuple, dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.errors import BadInputError
from penstock.base.files import parse_json, read_text, write_text
from penstock.runtime.batch import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.runtime.batch import Marks

_SIZE = 2048
KILLED = "killed its worker"
KILLED_IN_ORDER = f"{KILLED}, if rows came in the same order again: nothing else tells it from others"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call: of an operator's code on one row, known by its id and path. Without an id it is known by what it holds,
    for a shuffle does not keep rows in order when a task is run again; else by how many the operator got before it."""

    operator: str
    id: int | None
    path: int
    before: int | None = None
    digest: str | None = None
    """None: it has an id, or its content has no digest."""


class CallJournal:
    """Written by one thread. `poisoned` are the rows that killed earlier attempts.

    If two of them stood at the same place and held something else, rows are not the same from attempt to attempt (code
    before has put the time into them, say): there their order is all that is left to know them by."""

    def __init__(self, file: Path, poisoned: frozenset[CallRecord] = frozenset()) -> None:
        self._ids = {(record.operator, record.id, record.path) for record in poisoned if record.id is not None}
        self._digests = {(record.operator, record.digest) for record in poisoned if record.digest is not None}
        places = Counter((record.operator, record.before) for record in poisoned if record.before is not None)
        without = {(record.operator, record.before) for record in poisoned if record.digest is None}
        self._places = {place for place, deaths in places.items() if deaths > 1 or place in without}
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._got: dict[str, int] = {}

    def note_call(self, operator: str, marks: Marks, at: int, row: Callable[[], Mapping[str, Any]]) -> str | None:
        """Notes that the row at `at` is called next; `row` says what it holds. The error to put it aside with, if it
        must not be."""
        before = self._got.get(operator, 0)
        self._got[operator] = before + 1
        if marks.ids is None or marks.ids[at] == UNTRACED:
            record = CallRecord(operator, None, 0, before, digest(row()))
        else:
            record = CallRecord(operator, int(marks.ids[at]), 0 if marks.path is None else int(marks.path[at]))
        died_of_it = self._died_of(record)
        if died_of_it is None:
            self._write(json.dumps(astuple(record), ensure_ascii=False))
        return died_of_it

    def _died_of(self, record: CallRecord) -> str | None:
        if record.id is not None:
            return KILLED if (record.operator, record.id, record.path) in self._ids else None
        if (record.operator, record.digest) in self._digests:
            return KILLED
        return KILLED_IN_ORDER if (record.operator, record.before) in self._places else None

    def clear(self) -> None:
        """Note that no call is under way."""
        self._write("")

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, text: str) -> None:
        os.pwrite(self._descriptor, text.encode().ljust(_SIZE), 0)


def killed_twice(records: Sequence[CallRecord]) -> frozenset[CallRecord]:
    """Return the rows that two records may mean: once may be chance."""
    return frozenset(
        record
        for at, record in enumerate(records)
        if any(_may_be_same(record, other) for other in [*records[:at], *records[at + 1 :]])
    )


def _may_be_same(record: CallRecord, other: CallRecord) -> bool:
    if (record.operator, record.id, record.path) != (other.operator, other.id, other.path):
        return False
    is_told = record.digest is not None and record.digest == other.digest
    return record.id is not None or is_told or record.before == other.before


def digest(row: Mapping[str, Any]) -> str | None:
    """Of what a row holds, the same in every process; None where that cannot be said: an object of the user's own may
    be told by its address."""
    try:
        text = json.dumps(row, default=_in_words)
    except (TypeError, ValueError, RecursionError):
        return None
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _in_words(value: Any) -> Any:
    """Return the text of values in columns that JSON does not have."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, date | time | timedelta | Decimal | bytes):
        return repr(value)
    raise TypeError(f"no words for {type(value).__name__}")


def read_last_call(file: Path) -> CallRecord | None:
    """Return the call under way when the process that wrote `file` died; None if there was none."""
    if not file.exists():
        return None
    try:
        text = read_text(file).strip()
        return _record(parse_json(text, str(file)), file) if text else None
    except BadInputError as error:
        _LOG.warning("%s; who was called last is not known", error)
        return None


def read_records(file: Path) -> list[CallRecord]:
    """Return the records in `file`; none if it cannot be read: such rows are found again."""
    if not file.exists():
        return []
    try:
        rows = parse_json(read_text(file), str(file))
        if not isinstance(rows, list):
            raise BadInputError(f"{file}: expected a list of calls, found {type(rows).__name__}")
        return [_record(row, file) for row in rows]
    except BadInputError as error:
        _LOG.warning("%s; rows that killed earlier attempts are not known", error)
        return []


def write_records(file: Path, records: Sequence[CallRecord]) -> None:
    write_text(file, json.dumps([astuple(record) for record in records]))


def _record(row: Any, file: Path) -> CallRecord:
    match row:
        case [str(operator), int() | None as id_, int(path), int() | None as before, str() | None as digest_]:
            return CallRecord(operator, id_, path, before, digest_)
    raise BadInputError(f"{file}: expected a call as [operator, id, path, rows before it, digest]")
