"""Rows that were put aside: code raised on them, hung on them, killed its worker, or they do not fit their schema."""

from __future__ import annotations

import ctypes
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.runtime.batch import UNTRACED, Batch, Marks
from penstock.runtime.schemas import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence


# Giving up on a thread: it cannot be ended from outside, only told to end itself when it next runs Python code.


class AbandonedError(BaseException):
    """Raised in a thread that was given up on, because another continues its work. No user's code catches it."""


def interrupt(thread: threading.Thread) -> None:
    """End the call of a thread that is in Python code: a loop without end would keep a core busy. One that waits in C
    stays until that returns."""
    if thread.ident is not None:
        _raise_in(thread.ident, ctypes.py_object(AbandonedError))


def forget_interrupt() -> None:
    """Keep an interrupt of this thread from arriving after the call that it was to end."""
    _raise_in(threading.get_ident(), None)


def _raise_in(thread: int, error: ctypes.py_object[type[BaseException]] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)


DEAD_LETTERS = "dead/letters"
"""What dead letters leave a segment as; no operator's name has a slash."""

DEAD_LETTER_SCHEMA = pa.schema(
    [
        pa.field("operator", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("row", pa.string()),
        pa.field("error", pa.string()),
        pa.field("field", pa.string()),
    ]
)
"""`id` is null where ids are not tracked; `row` is JSON; `field` is null unless a value did not fit the schema."""


INTERRUPTIONS = (AbandonedError, KeyboardInterrupt, GeneratorExit)
"""What ends the work itself. Whatever else code of a user's raises does no more harm than a dead letter: `sys.exit` is
no reason to end a worker, and what is cancelled or panics in a library is no mere `Exception`."""


class StoppedError(Exception):
    """Code failed and its operator asked for the pipeline to stop, or it fails in a way that nothing can go on."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A row, where it was put aside, and why in one line."""

    operator: str
    id: int | None
    row: dict[str, Any]
    error: str
    field: str | None = None
    """The one that does not fit the schema."""

    def row_as_json(self) -> str:
        """Whatever the row holds; what JSON has no word for is told as text, and a row that has none either (it holds
        itself, or something that cannot be told) by the reason."""
        try:
            return json.dumps(self.row, default=str, skipkeys=True)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            return json.dumps({"not told": error_line(error)})


def error_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def as_batch(letters: Sequence[DeadLetter]) -> Batch:
    """Fit to be written as any other rows are."""
    columns = [
        [letter.operator for letter in letters],
        [letter.id for letter in letters],
        [letter.row_as_json() for letter in letters],
        [letter.error for letter in letters],
        [letter.field for letter in letters],
    ]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, DEAD_LETTER_SCHEMA, strict=True)],
        schema=DEAD_LETTER_SCHEMA,
    )
    ids = [UNTRACED if letter.id is None else letter.id for letter in letters]
    return Batch(rows, Marks(np.array(ids, np.int64)))
