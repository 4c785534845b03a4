"""The code of an operator, and how it wants its tuples.

    @logic(schema="word string, length int")
    def measure(row):                            # a row: one tuple as a dict
        return {"word": row["word"], "length": len(row["word"])}     # map; None filters; a list is a flat-map

    @logic(per="pandas", schema="celsius double")
    def convert(frame):                          # a batch as a DataFrame; its index says which tuple a row is
        return frame.assign(celsius=(frame.fahrenheit - 32) / 1.8)[["celsius"]]

`open` makes something every thread needs once (a connection), passed as the second argument; `close` ends it. The
schema is what comes out, in Spark's words; without one, what comes in comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable


class Per(StrEnum):
    """What one call of the code gets."""

    ROW = "row"
    """One tuple as a dict; returns a dict (map), None (filter), or a list of dicts or yields them (flat-map). Spark's
    Row, or any other mapping, does for a dict."""
    PANDAS = "pandas"
    """A DataFrame; returns a DataFrame whose index says which tuple each row came from."""
    ARROW = "arrow"
    """A pyarrow Table; returns a Table with one row per row it got."""
    MAP_IN_PANDAS = "map-in-pandas"
    """What `DataFrame.mapInPandas` takes: an iterator of DataFrames; returns an iterator of DataFrames."""


class OnError(StrEnum):
    DEAD_LETTER = "dead-letter"
    """A tuple whose code raises goes to the dead letters with the error; the others go on."""
    STOP = "stop"
    """The pipeline stops with the error; nothing of the batch is committed."""


@dataclass(frozen=True, slots=True)
class Logic:
    """User code with what is needed to run it."""

    function: Callable[..., Any]
    per: Per = Per.ROW
    schema: str | None = None
    open: Callable[[], Any] | None = None
    close: Callable[[Any], None] | None = None
    on_error: OnError = OnError.DEAD_LETTER

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
) -> Callable[[Callable[..., Any]], Logic]: ...
def logic(
    function: Callable[..., Any] | None = None,
    *,
    per: Per | str = Per.ROW,
    schema: str | None = None,
    open: Callable[[], Any] | None = None,  # noqa: A002 - the word users expect
    close: Callable[[Any], None] | None = None,
    on_error: OnError | str = OnError.DEAD_LETTER,
) -> Logic | Callable[[Callable[..., Any]], Logic]:
    """Decorator: makes a function the code of an operator."""

    def make(code: Callable[..., Any]) -> Logic:
        return Logic(code, Per(per), schema, open, close, OnError(on_error))

    return make if function is None else make(function)


def find_logic(address: str) -> Logic:
    """The code at `module:attribute`; a plain function is code per row."""
    module, colon, attribute = address.partition(":")
    if not colon:
        raise BadInputError(f"run '{address}': expected module:attribute")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadInputError(f"run '{address}': {error}") from error
    if isinstance(found, Logic):
        return found
    if callable(found):
        return Logic(found)
    raise BadInputError(f"run '{address}': expected a function, found {type(found).__name__}")
