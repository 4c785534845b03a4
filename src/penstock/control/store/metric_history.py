"""Readings by what they are of: pipelines, operators, the threads of an operator on a slot, partitions of topics,
nodes. The last ones are kept for whoever asks now, their means over windows of ten seconds go to the store."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.control.core.records import NodePhase, PipelineState
from penstock.control.core.turn import reason_of
from penstock.control.metrics import WINDOW_SECONDS, Metric, Scope, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.control.core.messages import PartReading, Readings
    from penstock.control.core.records import ControllerState, PipelineRecord
    from penstock.control.store.store import Store


# Readings of one window, as one compressed value for each owner: thousands of numbers every ten seconds are
# written, thinned and forgotten as a few hundred rows.
#
# PIPELINE    the pipeline itself (subject ""), its operators, and the partitions it reads: TOPIC/PARTITION
# PIPELINE/   its threads: OPERATOR/NODE/SLOT
# /           all nodes, by name


WindowReadings = dict[str, dict[str, float]]
"""Values by subject and metric."""

NODES = "/"
FAST = 1
"""Level of zlib: already ten times smaller."""


def threads_of(pipeline: str) -> str:
    """The owner of what its threads do."""
    return f"{pipeline}/"


def is_of_threads(owner: str) -> bool:
    return owner.endswith("/") and owner != NODES


def packed(readings: WindowReadings) -> bytes:
    return zlib.compress(json.dumps(readings, separators=(",", ":")).encode(), FAST)


def unpacked(value: bytes) -> WindowReadings:
    readings: WindowReadings = json.loads(zlib.decompress(value))
    return readings


class Means:
    """Running means of readings."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, tuple[float, int]]] = {}

    def add(self, subject: str, values: Iterable[tuple[str, float]]) -> None:
        sums = self._sums.setdefault(subject, {})
        for metric, value in values:
            total, count = sums.get(metric, (0.0, 0))
            sums[metric] = (total + value, count + 1)

    def readings(self) -> WindowReadings:
        return {
            subject: {metric: total / count for metric, (total, count) in sums.items()}
            for subject, sums in self._sums.items()
        }


def merged(values: Iterable[bytes]) -> bytes:
    """The means of several windows as one."""
    means = Means()
    for value in values:
        for subject, metrics in unpacked(value).items():
            means.add(subject, metrics.items())
    return packed(means.readings())


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
            if node.state is not NodePhase.GONE
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


# Metrics as they age: ten seconds for an hour, a minute for a day, an hour for a month, then nothing. Of threads there
# are only the ten seconds of the last hour.


HOUR, DAY, MONTH = 3600, 86_400, 30 * 86_400
AGES = ((HOUR, int(WINDOW_SECONDS), 60), (DAY, 60, HOUR), (MONTH, HOUR, 0))
"""(age, from, to): means over `from` seconds that are older than `age` become means over `to` seconds."""

THIN_EVERY = 60.0
"""Often, so that little is to be done each time."""


class History:
    """Readings gathered into windows, written when a window is over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._means: dict[str, Means] = {}
        """Means per owner."""
        self._window = -1.0
        self._thinned = 0.0

    def add(self, owner: str, subject: str, values: Mapping[str, float], now: float) -> None:
        self.turn(now)
        means = self._means.get(owner)
        if means is None:
            means = self._means[owner] = Means()
        means.add(subject, values.items())

    def turn(self, now: float) -> None:
        """Write the window that is over, and now and then thin old windows."""
        window = now // WINDOW_SECONDS * WINDOW_SECONDS
        if window == self._window:
            return
        over, self._means = self._means, {}
        at, self._window = self._window, window
        rows = [(owner, at, packed(means.readings())) for owner, means in over.items()]
        self._store.add_windows(int(WINDOW_SECONDS), rows)
        if now - self._thinned >= THIN_EVERY or now < self._thinned:
            self._thinned = now
            for older, seconds, into in AGES:
                self._thin(now, older, seconds, into)
            self._store.trim()

    def _thin(self, now: float, older: float, seconds: int, into: int) -> None:
        """Means over `seconds` that are older than `older` become means over `into`; with `into` 0 they go."""
        edge = _floor(now - older, into or seconds)
        alike: dict[tuple[str, float], list[bytes]] = {}
        for row in self._store.windows_before(seconds, edge) if into else ():
            if not is_of_threads(row["owner"]):
                alike.setdefault((row["owner"], _floor(row["at"], into)), []).append(row["readings"])
        rows = [(owner, at, merged(values)) for (owner, at), values in alike.items()]
        self._store.replace_windows(seconds, edge, into, rows)


def _floor(at: float, seconds: int) -> float:
    return at // seconds * seconds
