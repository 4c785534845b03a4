"""Printing for people and for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeVar

    from rich.console import Console
    from rich.table import Table

    T = TypeVar("T")

WIDEST_TABLE = 140
MOST_ROWS = 40
"""Rows of a table for people; programs get all of them with --json."""


def print_json(document: Any) -> None:
    print(json.dumps(document, allow_nan=False))


def console() -> Console:
    """Standard output, at least as wide as the widest table; what users named is printed as it is, never as markup."""
    from rich.console import Console

    class PatientConsole(Console):
        def on_broken_pipe(self) -> None:
            """A reader that has seen enough (`| head`) is not an error."""
            raise BrokenPipeError

    found = PatientConsole(highlight=False, soft_wrap=False, markup=False, emoji=False)
    found.width = max(found.width, WIDEST_TABLE)
    return found


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], most: int | None = None) -> Table:
    """The first column is text, the others are figures unless their name ends with a blank."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        text = position == 0 or column.endswith(" ")
        made.add_column(column.strip(), justify="left" if text else "right", overflow="fold")
    all_rows = list(rows)
    for row in all_rows[:most]:
        made.add_row(*row)
    if most is not None and len(all_rows) > most:
        made.caption = f"and {len(all_rows) - most} more: --json prints all"
        made.caption_justify = "left"
    return made


def progress(items: Sequence[T], what: str) -> Iterator[T]:
    """A progress bar on standard error while `items` are worked through; silent where that is not a terminal."""
    from rich.console import Console
    from rich.progress import track

    error_console = Console(stderr=True)
    yield from track(items, what, console=error_console, transient=True, disable=not error_console.is_terminal)


def figure(value: float | None, digits: int = 4) -> str:
    """A number as people read it; a dash where there is none or no bound."""
    if value is None or value in (float("inf"), float("-inf")):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"
