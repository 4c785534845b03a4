"""The code of an operator, and the kind of its calls.

    @logic(schema="word string, length int")
    def measure(row):                            # a row: one tuple as a dict
        return {"word": row["word"], "length": len(row["word"])}     # map; None filters; a list is a flat-map

    @logic(per="pandas", schema="celsius double")
    def convert(frame):                          # a batch as a DataFrame
        return frame.assign(celsius=(frame.fahrenheit - 32) / 1.8)[["celsius"]]

`open` makes something every thread needs once (a connection), passed as the second argument; `close` ends it. The
schema is that of the output, as Spark writes it; without one, the output has the schema of the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, overload

from penstock.base.errors import BadInputError
from penstock.base.text import one_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Per(StrEnum):
    """The argument of one call of the code."""

    ROW = "row"
    """One tuple as a dict; returns a dict (map), None (filter), or a list of dicts or yields them (flat-map). Spark's
    Row, or any other mapping, does for a dict."""
    PANDAS = "pandas"
    """A DataFrame; returns a DataFrame. As long as rows keep their index it is known which tuple each came from."""
    ARROW = "arrow"
    """A pyarrow Table; returns a Table or a RecordBatch. The input row of an output row is known as long as a column
    with distinct values is left as it was, in its order."""
    MAP_IN_PANDAS = "map-in-pandas"
    """The argument of `DataFrame.mapInPandas`: an iterator of DataFrames; returns an iterator of DataFrames. Called
    once per thread and batch of the engine, so anything loaded before its loop is loaded once."""
    DATAFRAME = "dataframe"
    """Spark's own: a streaming DataFrame of Spark (one for each stream it reads); returns one. Called once, when the
    query is made: column expressions, windows, joins, `transformWithState`, whatever Spark offers."""


class OnError(StrEnum):
    DEAD_LETTER = "dead-letter"
    """A tuple whose code raises goes to the dead letters with the error; the others go on."""
    STOP = "stop"
    """The pipeline stops with the error; nothing of the batch is committed."""


@dataclass(frozen=True, slots=True)
class Logic:
    """User code with all it needs to run."""

    function: Callable[..., Any]
    per: Per = Per.ROW
    schema: str | None = None
    open: Callable[[], Any] | None = None
    close: Callable[[Any], None] | None = None
    on_error: OnError = OnError.DEAD_LETTER
    timeout_seconds: float | None = None
    """A call that takes longer is given up, and its tuple is a dead letter."""

    def with_fields(self, **fields: Any) -> Logic:
        """The same code with these fields (as `logic` takes them) instead of its own."""
        own = {name: getattr(self, name) for name in ("per", "schema", "open", "close", "on_error", "timeout_seconds")}
        with_them: Logic = logic(**{**own, **fields})(self.function)
        return with_them

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "logic")

    def __call__(self, *arguments: Any) -> Any:
        """The plain function, so that decorated code can be tested as it is."""
        return self.function(*arguments)


@overload
def logic(function: Callable[..., Any]) -> Logic: ...
@overload
def logic(
    function: None = None,
    *,
    per: Per | str = Per.ROW,
    schema: str | None = None,
    open: Callable[[], Any] | None = None,
    close: Callable[[Any], None] | None = None,
    on_error: OnError | str = OnError.DEAD_LETTER,
    timeout_seconds: float | None = None,
) -> Callable[[Callable[..., Any]], Logic]: ...
def logic(
    function: Callable[..., Any] | None = None,
    *,
    per: Per | str = Per.ROW,
    schema: str | None = None,
    open: Callable[[], Any] | None = None,  # noqa: A002 - the word users expect
    close: Callable[[Any], None] | None = None,
    on_error: OnError | str = OnError.DEAD_LETTER,
    timeout_seconds: float | None = None,
) -> Logic | Callable[[Callable[..., Any]], Logic]:
    """Decorator: makes a function the code of an operator."""
    unit, answer = one_of(Per, per, "per"), one_of(OnError, on_error, "on_error")
    if timeout_seconds is not None and not 0 < timeout_seconds < float("inf"):
        raise BadInputError(f"timeout_seconds: expected seconds above 0, found {timeout_seconds!r}")
    if unit is Per.DATAFRAME:
        _refuse_for_sparks_own(open=open, close=close, on_error=answer, timeout_seconds=timeout_seconds)

    def make(code: Callable[..., Any]) -> Logic:
        if not callable(code):
            raise BadInputError(f"logic: expected a function, found {type(code).__name__}")
        return Logic(code, unit, schema, open, close, answer, timeout_seconds)

    return make if function is None else make(function)


def _refuse_for_sparks_own(**given: Any) -> None:
    """Reject options without effect: a function of DataFrames is called once, when the query is made, and Spark
    processes the rows by itself."""
    for name, value in given.items():
        if value is not None and value is not OnError.DEAD_LETTER:
            raise BadInputError(
                f"{name}: not with per='{Per.DATAFRAME}': its code is called once, when the query is made, and not for "
                "every tuple"
            )


def sparks_own_code(code: Mapping[str, Logic]) -> list[str]:
    """The operators whose code is a function of DataFrames."""
    return [name for name, logic in code.items() if logic.per is Per.DATAFRAME]


# The code of fused operators: one call, each part gets the result of the part before it.


_AS_ONE = frozenset({Per.ROW, Per.PANDAS, Per.ARROW})
"""Kinds whose output can be passed to the next function as it is."""


def why_not_as_one(parts: Mapping[str, tuple[Per | None, float | None]]) -> str | None:
    """Return the reason why codes cannot be chained; None if they can. By name: the kind of a call (None: not known
    before the code is imported) and the time limit."""
    kinds = {per for per, _ in parts.values() if per is not None}
    if len(kinds) > 1 or not kinds <= _AS_ONE:
        return ", ".join(f"{name} per {per or 'what its code says'}" for name, (per, _) in parts.items())
    limited = [limit is not None for _, limit in parts.values()]
    return "only some of its parts have a time limit" if any(limited) and not all(limited) else None


def chained(codes: Mapping[str, Logic], who: str) -> Logic:
    """Return one code that calls several in order, by the names they had. It stops when one of them stops; its time
    limit is the sum of theirs."""
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
    """The value that each part opened, or None."""

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
    """Return the output of code per row as an iterable: nothing, a row, or several."""
    if made is None:
        return ()
    if isinstance(made, Mapping):
        return (made,)
    return (made.asDict(recursive=True),) if hasattr(made, "asDict") else made
