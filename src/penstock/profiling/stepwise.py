"""Search a model by the published walk (Algorithm 1 of the model-driven scheduler): rates and threads rise in steps.

It takes as many trials as the rates it steps through, hundreds where a bracket finds a peak in a handful: a choice of
`penstock profile --search stepwise`, for those who compare with the publication.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.modelling.model import Point

FLAT_SLOPE = 0.001
"""Peak rates that rise by no more than this from one thread count to the next do not rise."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps and limits: threads 1, 1 + dt, ... up to `most_threads`, rates 1, 1 + dr, ... up to `most_rate`;
    `window`: how many of the last peak rates must no longer rise."""

    most_threads: int
    most_rate: float
    thread_step: int = 1
    rate_step: float = 1.0
    window: int = 3

    def __post_init__(self) -> None:
        for what, value, least in (
            ("most_threads", self.most_threads, 1),
            ("most_rate", self.most_rate, 1),
            ("thread_step", self.thread_step, 1),
            ("window", self.window, 2),
        ):
            if not least <= value < float("inf"):
                raise BadInputError(f"{what}: expected a number of at least {least}, found {value:g}")
        if not 0 < self.rate_step < float("inf"):
            raise BadInputError(f"rate_step: expected a number above 0, found {self.rate_step:g}")


def stepwise_points(try_rate: Callable[[int, float], Point | None], steps: Steps) -> Iterator[Point]:
    """Yield the points of a model. `try_rate(threads, rate)` runs one trial and returns its point, or None if it was
    not stable.

    For t = 1, 1 + dt, ...: raise the rate until a trial is not stable; the last stable one is the point. It ends at
    `most_threads`, or when the slope of the last `window` peak rates is 0.001 or less. A thread count without any
    stable rate gives no point.
    """
    peaks: list[float] = []
    for threads in range(1, steps.most_threads + 1, steps.thread_step):
        point = _peak(try_rate, threads, steps)
        if point is None:
            continue
        yield point
        peaks.append(point.rate)
        if len(peaks) >= steps.window and slope(peaks[-steps.window :]) <= FLAT_SLOPE:
            return


def _peak(try_rate: Callable[[int, float], Point | None], threads: int, steps: Steps) -> Point | None:
    last: Point | None = None
    rates = (1 + step * steps.rate_step for step in count())
    for rate in takewhile(lambda rate: rate <= steps.most_rate, rates):
        point = try_rate(threads, rate)
        if point is None:
            break
        last = point
    return last


def slope(values: Sequence[float]) -> float:
    """Return the least-squares slope of values at 0, 1, 2, ...: `sum (x - mean x) y / sum (x - mean x)^2`."""
    middle = (len(values) - 1) / 2
    above = sum((position - middle) * value for position, value in enumerate(values))
    return above / sum((position - middle) ** 2 for position in range(len(values)))
