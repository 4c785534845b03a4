"""What a function reports while it works. Subclass `Listener` to receive it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.modelling.model import Point
    from penstock.report.figures import Figures
    from penstock.report.report import BatchObservation


@dataclass(frozen=True, slots=True)
class Progress:
    """How far work is: `done` of `of`, where it is known how much there is."""

    doing: str
    done: float = 0.0
    of: float | None = None
    seconds_left: float | None = None
    """No more than this, where that is known."""

    @property
    def part(self) -> float | None:
        """0 to 1; nothing to do is done."""
        if self.of is None:
            return None
        return self.done / self.of if self.of else 1.0


class Listener:
    """Hears of work while it goes on: derive from it, and override what you want to hear of.

    Methods are called in the thread that works; what they raise ends the work.
    """

    def on_message(self, text: str) -> None:
        """Something worth a line: what begins, a rate that was tried, a warning."""

    def on_progress(self, progress: Progress) -> None:
        """How far it is, now and then."""

    def on_figures(self, figures: Figures) -> None:
        """Where a run stands, about once a second."""

    def on_batch(self, batch: BatchObservation) -> None:
        """A batch of a fused run was committed."""

    def on_tuple(self, sink: str, text: str) -> None:
        """A tuple reached a sink that goes to the console: `text` is JSON."""

    def on_point(self, model: str, point: Point) -> None:
        """A profile has measured one more point of a model."""
