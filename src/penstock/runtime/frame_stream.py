"""Code that takes an iterator of frames, as `mapInPandas` does: called once, and fed until the stream ends.

What such code does before its loop (loading a model) is why it takes an iterator, so it is not called anew for every
piece. It asks for frames when it likes, and therefore has a thread of its own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.abandoned import AbandonedError
from penstock.runtime.held_back import HeldBack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

    from penstock.runtime.batch import Batch
    from penstock.runtime.held_back import Settled

ROW_NUMBER = "__penstock_row__"
"""The name of the index frames come with. As long as a result's index has it, its labels say where rows came from:
filters, sorting and `explode` keep it."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """What came while one frame was given. Its rows had the labels from `first_label` on."""

    frames: list[Any]
    first_label: int
    in_step: bool
    """As many rows as went in before have come out before: nothing is held back."""
    settled: Settled | None = None
    """None: what came is all that comes of that frame, and of those before it."""


class FrameStream:
    """One call of the code. Another thread gives frames, one at a time."""

    def __init__(self, operator: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._operator = operator
        self._changed = threading.Condition()
        self._held = HeldBack()
        self._given: pd.DataFrame | None = None
        self._asks = False
        self._ending = False
        self.over = False
        """The code returned, or raised."""
        self._error: BaseException | None = None
        self._yielded: list[Any] = []
        self._rows_in = self._rows_out = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def give(self, frame: pd.DataFrame, piece: Batch) -> Yielded:
        """Until the code asks for more; `frame` is made of `piece`. Raises what the code raises, or what that means
        where it held rows back."""
        import pandas as pd  # noqa: PLC0415 - only where code wants it

        first = self._rows_in
        frame.index = pd.RangeIndex(first, first + len(frame), name=ROW_NUMBER)
        with self._changed:
            in_step = self._rows_in == self._rows_out
            self._given, self._asks = frame, False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._asks or self.over)
            if self._error is not None:
                raise self.failure(self._error)
            frames, self._yielded = self._yielded, []
        rows = sum(len(made) for made in frames if hasattr(made, "__len__"))
        self._rows_in += len(piece)
        self._rows_out += rows
        settled = self._held.answered(piece, len(frames), rows, _first_label(frames, first))
        if settled is not None and self.over:
            settled.lost_sight.extend(self._held.all())
        return Yielded(frames, first, in_step, settled)

    def failure(self, error: BaseException) -> BaseException:
        """What it means that the code fails with `error` now."""
        return self._held.failure(self._operator, error)

    def end(self, within_seconds: float | None) -> tuple[list[Any], list[Batch]]:
        """No more frames: what the code still yields, and the pieces of which nothing had come before."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self.over, within_seconds):
                raise TimeoutError(f"took longer than {within_seconds:g} s to end")
            if self._error is not None:
                raise self._error
            return self._yielded, self._held.all()

    def drop(self) -> None:
        """Lets the code end, whatever it still yields."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            for made in self._function(self._frames(), *self._arguments):
                self._yielded.append(made)
        except AbandonedError:
            pass  # nobody waits for what it would yield
        except BaseException as error:  # whoever gives frames raises it
            self._error = error
        finally:
            with self._changed:
                self.over = True
                self._changed.notify_all()

    def _frames(self) -> Iterator[pd.DataFrame]:
        while True:
            with self._changed:
                self._asks = self._given is None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._given is not None or self._ending)
                frame, self._given = self._given, None
            if frame is None:
                return
            yield frame


def _first_label(frames: list[Any], first: int) -> int | None:
    """Of what was yielded, counted from the label `first`; None where there is none. Looks at one row, not at all."""
    for made in frames:
        if getattr(getattr(made, "index", None), "name", None) == ROW_NUMBER and len(made):
            label = made.index[0]
            return int(label) - first if isinstance(label, int | np.integer) else None
    return None
