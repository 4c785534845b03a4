"""Printing for people and for programs.

Names come from files nobody vouches for. What a terminal would take for an order (colours, a moved cursor, another
direction of writing) is printed as an escape: everything that is printed passes `printable`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.base.errors import printable
from penstock.base.text import figure as figure  # noqa: PLC0414 - the shell prints numbers as results do
from penstock.base.text import latencies as latencies  # noqa: PLC0414
from penstock.dataflow.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeVar

    from rich.console import Console
    from rich.table import Table

    T = TypeVar("T")

WIDEST_TABLE = 140
LONGEST_MESSAGE = 2000
"""Characters of a complaint."""
MOST_ROWS = 40
"""Rows of a table for people; programs get all of them with --json."""


def say(text: str) -> None:
    """One line on standard output."""
    print(printable(text), flush=True)


def complain(text: str) -> None:
    """One line on standard error."""
    print(printable(shortened(redact(text))), file=sys.stderr, flush=True)


def shortened(message: str) -> str:
    """A complaint repeats what it complains about: of what is longer than anybody reads, the beginning and the end."""
    left_out = len(message) - LONGEST_MESSAGE
    half = LONGEST_MESSAGE // 2
    return message if left_out <= 0 else f"{message[:half]} ... ({left_out} characters) ... {message[-half:]}"


def print_json(document: Any) -> None:
    # JSON escapes all control characters but one
    print(json.dumps(document, allow_nan=False).replace("\x7f", "\\u007f"), flush=True)


def console(*, stderr: bool = False) -> Console:
    """Standard output, at least as wide as the widest table; what users named is printed as it is, never as markup."""
    from rich.console import Console

    class PatientConsole(Console):
        def on_broken_pipe(self) -> None:
            """A reader that has seen enough (`| head`) is not an error."""
            raise BrokenPipeError

        def print(self, *objects: Any, **options: Any) -> None:
            """Lines may be printed at once: a name with a line break in it reads as two, and does no other harm."""
            super().print(*(printable(it, keep="\n") if isinstance(it, str) else it for it in objects), **options)

    screen = PatientConsole(stderr=stderr, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not stderr:
        screen.width = max(screen.width, WIDEST_TABLE)
    return screen


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], most: int | None = None) -> Table:
    """The first column is text, the others are figures unless their name ends with a blank."""
    from rich import box
    from rich.table import Table

    made = Table(title=printable(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        text = position == 0 or column.endswith(" ")
        made.add_column(printable(column.strip()), justify="left" if text else "right", overflow="fold")
    all_rows = list(rows)
    for row in all_rows[:most]:
        made.add_row(*(printable(cell, keep="\n") for cell in row))
    if most is not None and len(all_rows) > most:
        made.caption = f"and {len(all_rows) - most} more: --json prints all"
        made.caption_justify = "left"
    return made


def progress(items: Sequence[T], what: str) -> Iterator[T]:
    """A progress bar on standard error while `items` are worked through; silent where that is not a terminal."""
    from rich.progress import track

    error_console = console(stderr=True)
    yield from track(items, what, console=error_console, transient=True, disable=not error_console.is_terminal)


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"
