"""Whose fault an exception of a step is: the pipeline, trigger, node, event or policy that was being worked on.

A step is pure: once the culprit is known, the step is taken again without it (`guarded`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from types import TracebackType

LONGEST_REASON = 300
"""Characters: a reason is read by people, and kept."""


class Blamable(StrEnum):
    PIPELINE = "pipeline"
    TRIGGER = "trigger"
    NODE = "node"
    EVENT = "event"
    """Something that was reported; `number` is its place among what happened."""
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Culprit:
    kind: Blamable
    name: str = ""
    """Name of the pipeline, the node or the policy."""
    number: int = 0
    """Number of a trigger, or position of an event."""

    def __str__(self) -> str:
        if self.kind is Blamable.TRIGGER:
            return f"trigger {self.number} of '{self.name}'"
        return f"a report of '{self.name}'" if self.kind is Blamable.EVENT else f"{self.kind} '{self.name}'"


class BlamedError(Exception):
    """An exception of a step, with the culprit; the exception itself is its cause."""

    def __init__(self, culprit: Culprit, error: BaseException) -> None:
        super().__init__(f"{culprit}: {reason_of(error)}")
        self.culprit = culprit
        self.error = error


class Blaming:
    """Blames the culprit for an exception raised inside, unless another was blamed already. An interrupt from outside
    the process blames none."""

    __slots__ = ("_culprit",)

    def __init__(self, kind: Blamable, name: str, number: int = 0) -> None:
        self._culprit = (kind, name, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if error is not None and not isinstance(error, BlamedError | KeyboardInterrupt):
            raise BlamedError(Culprit(*self._culprit), error) from error


def working_on(pipeline: str) -> Blaming:
    return Blaming(Blamable.PIPELINE, pipeline)


def reason_of(error: BaseException) -> str:
    """One line: the message of an error of ours, of any other its kind too."""
    text = " ".join(str(error).split())
    if not isinstance(error, PenstockError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
