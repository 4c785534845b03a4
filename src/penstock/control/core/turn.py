"""One step under way: a working copy of the state, and what has happened and been decided so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import isfinite
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.base.errors import PenstockError, nearest
from penstock.control.core.messages import (
    Decision,
    DecisionKind,
    Event,
    MeasuredOverhead,
    Overhead,
    PassRecord,
    Rejected,
    StepOutcome,
)
from penstock.control.core.records import Happening, NodeHappening, node_after, pipeline_after
from penstock.control.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from penstock.control.contracts import Sizing
    from penstock.control.core.records import Change, ControllerState, NodeRecord, PipelineRecord


# Values from outside, limited to those that every store accepts: finite numbers, 64-bit integers, Unicode text.


LARGEST_INTEGER = 2**63 - 1
LONGEST_TEXT = 4000


def plain_text(text: str) -> str:
    cut = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


def plain_value(value: Any) -> Any:
    """Turn numbers that are not finite or too large into None, and values of other types into text."""
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) <= LARGEST_INTEGER else None
        case float():
            return value if isfinite(value) else None
        case list() | tuple():
            return [plain_value(part) for part in value]
        case dict():
            return {plain_text(str(name)): plain_value(part) for name, part in value.items()}
    return plain_text(str(value))


R = TypeVar("R")


class Turn:
    """Made for one step and thrown away; only `finish` lets anything out."""

    def __init__(self, state: ControllerState, now: float, sizing: Sizing, *, divides: bool = True) -> None:
        self.state = state
        self.now = now
        self.sizing = sizing
        self.pipelines = dict(state.pipelines)
        self.nodes = dict(state.nodes)
        self.divides = divides
        self.cause: str | None = None
        """Why a pass is due; None while none is."""
        self._events: list[Event] = []
        self._decisions: list[Decision] = []
        self._measured: list[MeasuredOverhead] = []
        self._passes: list[PassRecord] = []

    def pipeline(self, name: str) -> PipelineRecord:
        if name not in self.pipelines:
            raise NotFoundError(f"no pipeline '{name}'; {nearest(name, self.pipelines)}")
        return self.pipelines[name]

    def node(self, name: str) -> NodeRecord:
        if name not in self.nodes:
            raise NotFoundError(f"no node '{name}'; {nearest(name, self.nodes)}")
        return self.nodes[name]

    def put(self, record: PipelineRecord) -> PipelineRecord:
        self.pipelines[record.name] = record
        return record

    def change(self, name: str, **fields: Any) -> PipelineRecord:
        return self.put(replace(self.pipelines[name], **fields))

    def set_state(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)

    def move(self, name: str, happening: Happening, why: str = "", **fields: Any) -> PipelineRecord:
        """The one way in which a pipeline changes its state."""
        record = self.pipelines[name]
        after = pipeline_after(record.state, happening)
        self.say(name, "state", record.state, after, why or str(happening))
        return self.put(replace(record, state=after, since=self.now, **fields))

    def move_node(self, name: str, happening: NodeHappening, why: str = "") -> NodeRecord:
        node = self.node(name)
        after = node_after(node.state, happening)
        self.say(name, "node", node.state, after, why or str(happening))
        self.nodes[name] = replace(node, state=after, since=self.now)
        return self.nodes[name]

    def say(self, subject: str, kind: str, before: str | None = None, after: str | None = None, why: str = "") -> None:
        self._events.append(Event(self.now, subject, kind, before, after, plain_text(why)))

    def want_pass(self, cause: str) -> None:
        self.cause = self.cause or cause

    def decide(
        self,
        pipeline: str,
        kind: DecisionKind,
        before: int,
        after: int,
        why: str,
        rejected: tuple[Rejected, ...] = (),
        expected: Mapping[str, Any] | None = None,
        pass_number: int | None = None,
    ) -> int:
        number = self.state.decided + 1
        self.set_state(decided=number)
        promised = MappingProxyType(plain_value(dict(expected or {})))
        self._decisions.append(
            Decision(number, self.now, pipeline, kind, before, after, plain_text(why), rejected, promised, pass_number)
        )
        return number

    def keep_pass(self, kept: PassRecord) -> None:
        self._passes.append(kept)

    def measure(self, change: Change) -> None:
        """The first tuple is there: how long its three stages took."""
        drained = change.asked_at if change.drained_at is None else change.drained_at
        placed = drained if change.placed_at is None else change.placed_at
        stages = (drained - change.asked_at, placed - drained, self.now - placed)
        overhead = Overhead(*(max(0.0, stage) for stage in stages))
        self._measured.extend(MeasuredOverhead(number, overhead) for number in change.decisions)

    def due(self, since: float, seconds: float) -> bool:
        """Whether so many seconds have passed; something of the future, left by a clock that was set back, is due."""
        return not 0 <= self.now - since < seconds

    def age(self, since: float) -> float:
        """Seconds since then; a clock that was set back makes nothing older or younger than it is."""
        return max(0.0, self.now - since)

    def finish(self) -> StepOutcome:
        state = replace(
            self.state,
            pipelines=_same_or(self.state.pipelines, self.pipelines),
            nodes=_same_or(self.state.nodes, self.nodes),
        )
        return StepOutcome(
            state, tuple(self._events), tuple(self._decisions), tuple(self._measured), tuple(self._passes)
        )


def _same_or(before: Mapping[str, R], after: dict[str, R]) -> Mapping[str, R]:
    """The mapping of before where nothing in it changed: who compares states sees that at once."""
    same = len(before) == len(after) and all(map(is_, before.values(), after.values()))
    return before if same else MappingProxyType(after)


# Whose fault an exception of a step is: the pipeline, trigger, node, event or policy that was being worked on.
#
# A step is pure: once the culprit is known, the step is taken again without it (`guarded`).


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
