"""Units for a rate, and a rate on units, from a pipeline's models: the allocator the plans use, asked both ways."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.base.errors import BadInputError
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.control.core.records import MOST_UNITS
from penstock.dataflow.code import parse_pipeline
from penstock.dataflow.pipeline import Kind, gains
from penstock.modelling.library import demands_to_run
from penstock.modelling.model import Model, batch_overhead_seconds
from penstock.planning.planner import Planner
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR
from penstock.planning.sharing.contract import equal_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import Submission
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.library import ModelLibrary

K = TypeVar("K")
V = TypeVar("V")

HALVINGS = 40
HIGHEST_RATE = 1e9
MOST_REMEMBERED = 100_000
"""Answers of a kind: loads swing, and no two rates are the same."""


@dataclass
class ModelSizing:
    """Answers are remembered: a pass asks the same again and again."""

    library: ModelLibrary
    unit_slots: int
    allocator: str = DEFAULT_ALLOCATOR
    _planners: dict[str, Planner | None] = field(default_factory=dict)
    _units: dict[tuple[str, float], int | None] = field(default_factory=dict)
    _rates: dict[tuple[str, int], float | None] = field(default_factory=dict)
    _usage: dict[tuple[str, float], tuple[float, float] | None] = field(default_factory=dict)
    _gains: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _batch_costs: dict[str, float] = field(default_factory=dict)
    _definitions: dict[str, Pipeline] = field(default_factory=dict)

    def definition(self, submission: Submission) -> tuple[Pipeline, ModelLibrary]:
        key = fingerprint_of(submission)
        if key not in self._definitions:
            _remember(self._definitions, key, pipeline_of(submission))
        return self._definitions[key], self.library

    def _allocator(self, submission: Submission) -> str:
        return submission.choices.allocator or self.allocator

    def _key(self, submission: Submission) -> str:
        return f"{self._allocator(submission)} {fingerprint_of(submission)}"

    def units_for(self, submission: Submission, rate: float) -> int | None:
        """Slots the allocation needs, in whole units; None where no operator needs more at a higher rate."""
        key = (self._key(submission), rate)
        if key not in self._units:
            planner, allocator = self.planner(submission), self._allocator(submission)
            _remember(self._units, key, None if planner is None else self._count(planner, rate, allocator))
        return self._units[key]

    def rate_on(self, submission: Submission, units: int) -> float | None:
        """The highest rate whose allocation needs no more than so many units."""
        key = (self._key(submission), units)
        if key not in self._rates:
            planner = self.planner(submission)
            _remember(
                self._rates,
                key,
                None if planner is None else self._highest(planner, units, self._allocator(submission)),
            )
        return self._rates[key]

    def units_to_place(self, submission: Submission) -> int:
        """Return the units of a placed pipeline whose models ask for no more at a higher rate: those of its allocation
        at the rate it is meant for, or one if it was not measured."""
        pipeline, library = self.definition(submission)
        allocator = self._allocator(submission)
        key = (self._key(submission), -1.0)
        if key not in self._units:
            try:
                planner = Planner(pipeline, library, equal_nodes(1, self.unit_slots, ""))
                units = self._count(planner, submission.target.rate or 1.0, allocator)
            except BadInputError:
                units = 1
            _remember(self._units, key, units)
        return self._units[key] or 1

    def usage(self, submission: Submission, rate: float) -> tuple[float, float] | None:
        """Cores and MB of its executors at so many tuples/s, by the models; None where they say nothing."""
        key = (self._key(submission), float(f"{rate:.2g}"))
        if key not in self._usage:
            planner, allocator = self.planner(submission), self._allocator(submission)
            _remember(self._usage, key, None if planner is None else self._used(planner, key[1], allocator))
        return self._usage[key]

    def _used(self, planner: Planner, rate: float, allocator: str) -> tuple[float, float] | None:
        if not rate > 0:
            return 0.0, 0.0
        try:
            operators = planner.allocate(rate, ALLOCATORS.create(allocator)).operators
        except (BadInputError, ArithmeticError):
            return None
        memory = sum(operator.memory for operator in operators) * DEFAULT_SLOT_MEMORY_MB
        return sum(operator.cpu for operator in operators), memory

    def gains_of(self, submission: Submission) -> Mapping[str, float]:
        """Tuples that come to each operator for one of a source's."""
        key = fingerprint_of(submission)
        if key not in self._gains:
            self._gains[key] = {name: gain.at(1.0) for name, gain in gains(self.definition(submission)[0]).items()}
        return self._gains[key]

    def batch_cost(self, submission: Submission) -> float:
        key = fingerprint_of(submission)
        if key not in self._batch_costs:
            demands = demands_to_run(self.definition(submission)[0], self.library).values()
            self._batch_costs[key] = batch_overhead_seconds([model for model in demands if isinstance(model, Model)])
        return self._batch_costs[key]

    def planner(self, submission: Submission) -> Planner | None:
        """What plans it on nodes of one unit; None where its models say nothing."""
        key = fingerprint_of(submission)
        if key not in self._planners:
            self._planners[key] = self._made(self.definition(submission)[0])
        return self._planners[key]

    def _made(self, pipeline: Pipeline) -> Planner | None:
        """None where an operator has no model, or none needs more at a higher rate: nobody can say how many."""
        demands = demands_to_run(pipeline, self.library)
        if any(
            demands[name] is None for name, operator in pipeline.operators.items() if operator.kind is Kind.OPERATOR
        ):
            return None
        planner = Planner(pipeline, self.library, equal_nodes(1, self.unit_slots, ""))
        return planner if planner.grows_with_rate else None

    def _count(self, planner: Planner, rate: float, allocator: str) -> int:
        """What cannot be counted is more than anybody may have."""
        if not rate > 0:
            return 1
        try:
            slots = planner.allocate(rate, ALLOCATORS.create(allocator)).slots_with_sources_and_sinks
        except (BadInputError, ArithmeticError):
            return MOST_UNITS
        return min(MOST_UNITS, max(1, -(-slots // self.unit_slots)))

    def _highest(self, planner: Planner, units: int, allocator: str) -> float:
        low, high = 0.0, 1.0
        while high < HIGHEST_RATE and self._count(planner, high, allocator) <= units:
            low, high = high, 2 * high
        for _ in range(HALVINGS):
            if high - low <= 1e-3 * high:
                break
            middle = (low + high) / 2
            low, high = (middle, high) if self._count(planner, middle, allocator) <= units else (low, middle)
        return low


def _remember(table: dict[K, V], key: K, value: V) -> None:
    if len(table) >= MOST_REMEMBERED:
        table.clear()
    table[key] = value


def pipeline_of(submission: Submission) -> Pipeline:
    """From the document that was made of it when it was submitted."""
    return parse_pipeline(submission.definition or submission.pipeline, f"pipeline '{submission.name}'")


def fingerprint_of(submission: Submission) -> str:
    return submission.fingerprint or json.dumps(submission.pipeline, sort_keys=True)
