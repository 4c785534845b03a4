"""Progress of a command, on standard error; on a terminal also a bar or the figures of a run."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.errors import printable
from penstock.cli import output
from penstock.report.listener import Listener, Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from penstock.modelling.model import Point
    from penstock.report.figures import Figures

FRAMES_PER_SECOND = 4


class LiveListener(Listener):
    """Prints messages above what is under way: a bar, or the figures of a run."""

    def __init__(self, console: Console, *, json: bool = False) -> None:
        self._console = console
        self._json = json
        self._now: Progress | Figures | None = None

    def on_message(self, text: str) -> None:
        self._console.print(text)

    def on_progress(self, progress: Progress) -> None:
        self._now = progress

    def on_figures(self, figures: Figures) -> None:
        self._now = figures

    def on_tuple(self, sink: str, text: str) -> None:
        """Standard output is for the report alone where a program reads it."""
        (output.complain if self._json else output.say)(f"{sink}: {text}")

    def on_point(self, model: str, point: Point) -> None:
        if self._console.is_terminal:
            self._console.print(
                f"{model}: {point.threads} threads, {output.figure(point.rate)} tuples/s, "
                f"cpu {output.share(point.cpu)}, memory {output.share(point.memory)}"
            )

    def view(self) -> RenderableType:
        if self._now is None:
            return ""
        return _bar(self._now) if isinstance(self._now, Progress) else _figures(self._now)


@contextmanager
def listening(*, json: bool = False) -> Iterator[LiveListener]:
    """A listener for one verb; `json`: standard output belongs to a program."""
    from rich.live import Live

    console = output.console(stderr=True)
    listener = LiveListener(console, json=json)
    if not console.is_terminal:
        yield listener
        return
    with Live(
        get_renderable=listener.view,
        console=console,
        refresh_per_second=FRAMES_PER_SECOND,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    ):
        yield listener


def _bar(progress: Progress) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    row = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = [printable(progress.doing)]
    if progress.of is not None:
        cells.append(ProgressBar(total=progress.of or 1.0, completed=progress.done if progress.of else 1.0, width=40))
        cells.append(f"{100 * (progress.part or 0.0):.0f} %")
    if progress.seconds_left is not None:
        cells.append(f"at most {progress.seconds_left:,.0f} s left")
    row.add_row(*cells)
    return row


def _figures(figures: Figures) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    latency = output.latencies(figures.latency_ms)
    of = "" if figures.of_seconds is None else f" of {figures.of_seconds:.0f}"
    headline = (
        f"{figures.seconds:.0f}{of} s   offered {output.figure(figures.offered)}, "
        f"sustained {output.figure(figures.sustained)} tuples/s   backlog {figures.backlog:,}   "
        f"latency {latency or '-'}   dead letters {figures.dead:,}"
    )
    slots = output.table(
        "",
        ("slot", "cpu", "memory MB"),
        ((slot, output.share(cpu), f"{memory:,.0f}") for slot, (cpu, memory) in figures.slots.items()),
        most=16,
    )
    busy = "busy: " + ", ".join(f"{name} {output.share(share)}" for name, share in figures.busy.items())
    return Group(Text(headline), slots, Text(printable(busy)))
