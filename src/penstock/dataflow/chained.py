"""The code of operators that were fused: each gets what the one before it made, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.dataflow.logic import Logic, OnError, Per
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

_AS_ONE = frozenset({Per.ROW, Per.PANDAS, Per.ARROW})
"""What can be handed from one function to the next as it is."""


def why_not_as_one(parts: Mapping[str, tuple[Per | None, float | None]]) -> str | None:
    """What keeps codes from being chained, of which by name is known what a call gets (None: not known before the code
    is looked up) and the time limit."""
    kinds = {per for per, _ in parts.values() if per is not None}
    if len(kinds) > 1 or not kinds <= _AS_ONE:
        return ", ".join(f"{name} per {per or 'what its code says'}" for name, (per, _) in parts.items())
    limited = [limit is not None for _, limit in parts.values()]
    return "only some of its parts have a time limit" if any(limited) and not all(limited) else None


def chained(codes: Mapping[str, Logic], who: str) -> Logic:
    """One code of several, in order, by the names they had. It stops where one of them would; its time limit is that of
    all together."""
    several = list(codes.values())
    why_not = why_not_as_one({name: (code.per, code.timeout_seconds) for name, code in codes.items()})
    if why_not is not None:
        raise BadInputError(f"{who}: cannot run as one: {why_not}")
    known = [code.timeout_seconds for code in several if code.timeout_seconds is not None]
    opened = _Opened(tuple(several)) if any(code.open is not None for code in several) else None
    kind = several[0].per
    return Logic(
        _ChainedRows(tuple(several)) if kind is Per.ROW else _ChainedColumns(tuple(several)),
        kind,
        next((code.schema for code in reversed(several) if code.schema is not None), None),
        None if opened is None else opened.open,
        None if opened is None else opened.close,
        OnError.STOP if any(code.on_error is OnError.STOP for code in several) else OnError.DEAD_LETTER,
        sum(known) if known else None,
    )


@dataclass(frozen=True)
class _Opened:
    """What each part opened, or None."""

    codes: tuple[Logic, ...]

    def open(self) -> tuple[Any, ...]:
        return tuple(None if code.open is None else code.open() for code in self.codes)

    def close(self, handles: tuple[Any, ...]) -> None:
        for code, handle in reversed(list(zip(self.codes, handles, strict=True))):
            if code.open is not None and code.close is not None:
                code.close(handle)


def _arguments(code: Logic, number: int, opened: tuple[Any, ...]) -> tuple[Any, ...]:
    return () if code.open is None else (opened[0][number],)


@dataclass(frozen=True)
class _ChainedRows:
    codes: tuple[Logic, ...]

    def __call__(self, row: dict[str, Any], *opened: Any) -> Any:
        rows: list[Any] = [row]
        for number, code in enumerate(self.codes):
            arguments = _arguments(code, number, opened)
            rows = [made for given in rows for made in _several(code.function(given, *arguments))]
        return rows[0] if len(rows) == 1 else rows


@dataclass(frozen=True)
class _ChainedColumns:
    codes: tuple[Logic, ...]

    def __call__(self, columns: Any, *opened: Any) -> Any:
        for number, code in enumerate(self.codes):
            columns = code.function(columns, *_arguments(code, number, opened))
        return columns


def _several(made: Any) -> Iterable[Any]:
    """What code per row may return: nothing, a row, or several."""
    if made is None:
        return ()
    if isinstance(made, Mapping):
        return (made,)
    return (made.asDict(recursive=True),) if hasattr(made, "asDict") else made
