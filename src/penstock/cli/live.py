"""What a run shows while it goes on: a small table on standard error, once per second, where that is a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from penstock.report.progress import Figures, Progress


@contextmanager
def live_view(progress: Progress) -> Iterator[None]:
    """Tuples a console sink prints meanwhile appear above the table."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield
        return
    with Live(
        get_renderable=lambda: view(progress),
        console=console,
        refresh_per_second=1,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    ):
        yield


def view(progress: Progress) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    figures = progress.figures()
    if figures is None:
        return Text(progress.saying if progress.first is None else f"{progress.saying}, first batch done")
    return Group(Text(_headline(progress, figures)), _slots(figures), Text(_busy(figures)))


def _headline(progress: Progress, figures: Figures) -> str:
    latency = ", ".join(f"{name} {output.figure(value)} ms" for name, value in figures.latency_ms.items())
    return (
        f"{figures.seconds:.0f} of {progress.seconds:.0f} s   offered {output.figure(figures.offered)}, "
        f"sustained {output.figure(figures.sustained)} tuples/s   backlog {figures.backlog:,}   "
        f"latency {latency or '-'}"
    )


def _slots(figures: Figures) -> RenderableType:
    return output.table(
        "",
        ("slot", "cpu", "memory MB"),
        ((str(slot), output.share(cpu), f"{memory:,.0f}") for slot, (cpu, memory) in figures.slots.items()),
        most=16,
    )


def _busy(figures: Figures) -> str:
    return "busy: " + ", ".join(f"{name} {output.share(busy)}" for name, busy in figures.busy.items())
