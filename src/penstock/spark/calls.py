"""Calling user code on tuples: per row, or per batch as pandas or Arrow. What raises becomes a dead letter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.dataflow.logic import OnError, Per
from penstock.spark.tuples import Tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from penstock.dataflow.logic import Logic


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A tuple whose code raised, where, and the error in one line."""

    operator: str
    tuple: Tuple
    error: str


Outcome = Tuple | DeadLetter | None
"""None: code dropped the tuple (its id is recorded by the caller)."""

Outcomes = Outcome | list[Tuple]
"""What became of one tuple; several tuples where code made several."""


class StoppedError(Exception):
    """User code raised, and the operator asked for the pipeline to stop."""


def call_row(operator: str, logic: Logic, item: Tuple, arguments: tuple[Any, ...]) -> Outcomes:
    try:
        made = logic.function(item.payload, *arguments)
        if made is not None and type(made) is not dict:
            made = _one_or_several(made)
    except Exception as error:
        return _letter(operator, logic, item, error)
    if type(made) is list:
        return [item.child(number, payload) for number, payload in enumerate(made)] or None
    return None if made is None else Tuple(item.id, item.due, item.path, made)


def _one_or_several(made: Any) -> dict[str, Any] | list[dict[str, Any]]:
    """What code per row returned, or yields: its own code may still run, and raise, while it is gone through."""
    if _is_row(made):
        return _plain(made)
    if isinstance(made, str | bytes) or not isinstance(made, Iterable):
        raise TypeError(f"expected a dict, None or several dicts, got {type(made).__name__}")
    return [_plain(payload) for payload in made]


def _is_row(made: object) -> bool:
    return isinstance(made, Mapping) or hasattr(made, "asDict")


def _plain(payload: Any) -> dict[str, Any]:
    """A dict of its own, of what may be another kind of mapping, or Spark's Row."""
    if isinstance(payload, dict):
        return dict(payload)
    if not _is_row(payload):
        raise TypeError(f"expected dicts, got one {type(payload).__name__} among them")
    return dict(payload) if isinstance(payload, Mapping) else payload.asDict(recursive=True)


def call_batch(operator: str, logic: Logic, items: Sequence[Tuple], arguments: tuple[Any, ...]) -> list[Outcomes]:
    """One call for all items, an answer for each; if it raises, halves are tried until what offends stands alone."""
    try:
        made = _CALLS[logic.per](logic.function, items, arguments)
    except Exception as error:
        if len(items) == 1:
            return [_letter(operator, logic, items[0], error)]
        middle = len(items) // 2
        return [
            *call_batch(operator, logic, items[:middle], arguments),
            *call_batch(operator, logic, items[middle:], arguments),
        ]
    outcomes: list[Outcomes] = []
    for item, payloads in zip(items, made, strict=True):
        if not payloads:
            outcomes.append(None)
        elif len(payloads) == 1:
            outcomes.append(Tuple(item.id, item.due, item.path, payloads[0]))
        else:
            outcomes.append([item.child(number, payload) for number, payload in enumerate(payloads)])
    return outcomes


def _letter(operator: str, logic: Logic, item: Tuple, error: Exception) -> DeadLetter:
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    if logic.on_error is OnError.STOP:
        raise StoppedError(f"operator '{operator}', tuple {item.id}: {text}") from error
    return DeadLetter(operator, item, text)


Payloads = list[list[dict[str, Any]]]
"""For every tuple that went in, what came out of it."""


def _per_pandas(function: Callable[..., Any], items: Sequence[Tuple], arguments: tuple[Any, ...]) -> Payloads:
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    frame = pd.DataFrame.from_records([item.payload for item in items])
    return _by_index(function(frame, *arguments), len(items))


def _per_map_in_pandas(function: Callable[..., Any], items: Sequence[Tuple], arguments: tuple[Any, ...]) -> Payloads:
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    frame = pd.DataFrame.from_records([item.payload for item in items])
    made = list(function(iter([frame]), *arguments))
    return _by_index(pd.concat(made) if made else frame.iloc[:0], len(items))


def _by_index(made: pd.DataFrame, size: int) -> Payloads:
    """Rows go back to the tuple their index names; a frame that lost its index must have as many rows as before."""
    index = made.index.to_list()
    if not all(isinstance(label, int) and 0 <= label < size for label in index):
        if len(made) != size:
            raise ValueError("the result's index does not say which tuple its rows came from; keep the frame's index")
        index = list(range(size))
    payloads: Payloads = [[] for _ in range(size)]
    for label, payload in zip(index, made.to_dict("records"), strict=True):
        payloads[label].append(payload)
    return payloads


def _per_arrow(function: Callable[..., Any], items: Sequence[Tuple], arguments: tuple[Any, ...]) -> Payloads:
    import pyarrow as pa  # noqa: PLC0415 - only where code wants it

    made = function(pa.Table.from_pylist([item.payload for item in items]), *arguments)
    if made.num_rows != len(items):
        raise ValueError(f"per arrow: expected a row for every row, got {made.num_rows} for {len(items)}")
    return [[payload] for payload in made.to_pylist()]


_CALLS = {Per.PANDAS: _per_pandas, Per.MAP_IN_PANDAS: _per_map_in_pandas, Per.ARROW: _per_arrow}
