"""One step under way: a working copy of the state, and what has happened and been decided so far."""

from __future__ import annotations

from dataclasses import replace
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.control.core.outcome import (
    Decision,
    DecisionKind,
    Event,
    MeasuredOverhead,
    Overhead,
    PassRecord,
    Rejected,
    StepOutcome,
)
from penstock.control.core.plain import plain_text, plain_value
from penstock.control.core.states import Happening, NodeHappening, node_after, pipeline_after
from penstock.control.errors import NotFoundError
from penstock.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import Change, ControllerState, NodeRecord, PipelineRecord
    from penstock.control.core.sizing import Sizing

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
