"""Readings by what they are of: pipelines, operators, the threads of an operator on a slot, partitions of topics,
nodes. The last ones are kept for whoever asks now, their means over windows of ten seconds go to the store."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from penstock.control.core.blame import reason_of
from penstock.control.core.states import NodeState, PipelineState
from penstock.control.metrics import WINDOW_SECONDS, Metric, Scope, Subject
from penstock.control.store.windows import NODES, threads_of
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.control.core.incoming import PartReading, Readings
    from penstock.control.core.records import ControllerState, PipelineRecord
    from penstock.control.store.history import History

Values = dict[str, float]

MOST_SAID = 3
"""Pipelines whose readings are named in one complaint."""


class Statistics:
    def __init__(self, history: History) -> None:
        self._history = history
        self._parts: dict[str, tuple[PartReading, ...]] = {}
        """The last of each pipeline."""
        self._nodes_at = -WINDOW_SECONDS

    def take(self, reports: Iterable[Readings], state: ControllerState, now: float) -> None:
        """All that was reported in one look. What nodes do together is added up once a window."""
        unusable: list[str] = []
        for report in reports:
            record = state.pipelines.get(report.pipeline)
            if record is None or not _lives(record):
                continue
            try:
                self._add(report, state, record, now)
            except (TypeError, ValueError, ArithmeticError) as error:
                self._parts.pop(record.name, None)
                unusable.append(f"readings of '{record.name}' cannot be kept: {reason_of(error)}")
        if self._parts and not 0 <= now - self._nodes_at < WINDOW_SECONDS:
            self._nodes_at = now
            for subject, values in self._nodes(state):
                self._history.add(NODES, subject.node or "", values, now)
            self._parts = {name: parts for name, parts in self._parts.items() if _lives(state.pipelines.get(name))}

        if unusable:
            raise BadInputError("; ".join(unusable[:MOST_SAID]))

    def _add(self, report: Readings, state: ControllerState, record: PipelineRecord, now: float) -> None:
        name = record.name
        self._history.add(name, "", finite({**report.values, **pipeline_values(state, record)}), now)
        if not report.parts:
            return
        self._parts[name] = tuple(replace(part, values=finite(part.values)) for part in report.parts)
        for part in self._parts[name]:
            if part.operator is not None and part.slot is not None:
                thread = f"{part.operator}/{part.slot.node}/{part.slot.number}"
                self._history.add(threads_of(name), thread, part.values, now)
            elif part.operator is not None or part.partition is not None:
                self._history.add(name, part.operator or str(part.partition), part.values, now)

    def latest(self, state: ControllerState) -> Iterator[tuple[Subject, Values]]:
        """Of everything that lives: pipelines, operators, threads, nodes."""
        for record in state.pipelines.values():
            if _lives(record):
                yield Subject(Scope.PIPELINE, record.name), {**record.readings, **pipeline_values(state, record)}
                if record.held:
                    yield from _of_parts(record.name, self._parts.get(record.name, ()))
        yield from self._nodes(state)

    def operators(self, record: PipelineRecord) -> dict[str, Values]:
        """The last that was measured of each, over all its slots."""
        parts = self._parts.get(record.name, ()) if record.held else ()
        return {part.operator: dict(part.values) for part in parts if part.operator is not None and part.slot is None}

    def _nodes(self, state: ControllerState) -> Iterator[tuple[Subject, Values]]:
        """What all pipelines use there together."""
        used: dict[str, Values] = {
            node.name: {str(metric): 0.0 for metric in (Metric.CPU, Metric.MEMORY_MB, Metric.SLOTS_USED)}
            for node in state.nodes.values()
            if node.state is not NodeState.GONE
        }
        for record in state.pipelines.values():
            for slot in record.held:
                if slot.node in used:
                    used[slot.node][Metric.SLOTS_USED] += 1
            for part in self._parts.get(record.name, ()) if record.held else ():
                if part.operator is None and part.slot is not None and part.slot.node in used:
                    for metric, value in part.values.items():
                        used[part.slot.node][metric] = used[part.slot.node].get(metric, 0.0) + value
        for name, values in used.items():
            yield Subject(Scope.NODE, node=name), values


def finite(values: Mapping[str, float]) -> Values:
    """Without what is no number: nothing can be added to it."""
    return {metric: value for metric, value in values.items() if isfinite(value)}


def _lives(record: PipelineRecord | None) -> bool:
    return record is not None and record.state is not PipelineState.KILLED


def pipeline_values(state: ControllerState, record: PipelineRecord) -> Mapping[str, float]:
    """What the controller itself knows of a pipeline."""
    return {
        str(Metric.NEEDED): float(record.needed),
        str(Metric.HELD): float(state.units(record.held)),
        str(Metric.FAIRNESS): record.served.degree,
        str(Metric.PRIORITY): float(record.priority),
        str(Metric.DEATHS): float(record.deaths),
    }


def _of_parts(pipeline: str, parts: tuple[PartReading, ...]) -> Iterator[tuple[Subject, Values]]:
    for part in parts:
        if part.operator is not None and part.slot is not None:
            where = Subject(Scope.THREAD, pipeline, part.operator, part.slot.node, part.slot.number)
            yield where, dict(part.values)
        elif part.operator is not None:
            yield Subject(Scope.OPERATOR, pipeline, part.operator), dict(part.values)
        elif part.partition is not None:
            yield Subject.of(f"{pipeline}/{part.partition}"), dict(part.values)
