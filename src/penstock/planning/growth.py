"""Growth: when a placer refuses, one slot is added and everything is tried again."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

SINGLE_STEPS = 16
"""Steps of one slot before strides double."""


def grow(first: int, most: int, attempt: Callable[[int], T | Refusal]) -> tuple[int, T | Refusal]:
    """The fewest slots from `first` to `most` for which `attempt` does not refuse, and its answer.

    One by one for the first steps, or by as many as a refusal says are missing at least. Large plans can lack
    hundreds: strides then double until one does. After a step of more than one, bisection finds the number that was
    enough, taking it that slots which do not suffice are fewer than those that do.
    """
    answer: T | Refusal = attempt(first)
    slots = first
    stride = 1
    steps = 0
    while isinstance(answer, Refusal) and answer.more_slots_may_help and slots < most:
        refused = slots
        if steps >= SINGLE_STEPS:
            stride *= 2
        steps += 1
        slots = min(slots + max(stride, answer.slots_missing), most)
        answer = attempt(slots)
        if not isinstance(answer, Refusal) and slots - refused > 1:
            return _bisect(refused, slots, answer, attempt)
    return slots, answer


def _bisect(refused: int, enough: int, answer: T, attempt: Callable[[int], T | Refusal]) -> tuple[int, T]:
    """The fewest between one that was refused and one that was enough, and its answer."""
    answers = {enough: answer}

    def suffices(slots: int) -> bool:
        answer = attempt(slots)
        if isinstance(answer, Refusal):
            return False
        answers[slots] = answer
        return True

    fewest = refused + 1 + bisect_left(range(refused + 1, enough), x=True, key=suffices)
    return fewest, answers[fewest]
