"""Plan files: written once, read strictly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from penstock.cluster.topology import Slot
from penstock.errors import BadInputError, nearest
from penstock.files import Amount, Count, Name, Positive, Spec, Versioned, check, parse_json, read_text, write_output
from penstock.modelling.file import parse_models_and_profiles
from penstock.modelling.library import ModelLibrary
from penstock.planning.plan import PLAN_FORMAT

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.planning.plan import Plan


class SavedOperator(Spec):
    rate: Amount
    threads: Count
    cpu: Amount
    memory: Amount


Whole = Annotated[int, Field(ge=0, strict=True)]


class SavedSlots(Spec):
    allocated: Whole
    allocated_with_ends: Whole
    placed: Whole
    acquired: Whole
    used: Whole
    memory_mb: Positive | None = None
    """Of the smallest; plans of 0.1 do not say."""


class SavedNode(Spec):
    name: Name
    rack: Name
    size: Name | None = None
    slots: Count
    price: Amount | None = None


class SavedBundles(Spec):
    node: Name
    slot: Annotated[int, Field(strict=True)]
    threads: dict[Name, Count]


class SavedPlan(Versioned):
    """A plan as it stands in a file."""

    newest: ClassVar[int] = PLAN_FORMAT

    pipeline: Name
    rate: Positive
    load: Positive = 1.0
    allocator: Name
    placer: Name
    operators: dict[Name, SavedOperator]
    slots: SavedSlots
    nodes: tuple[SavedNode, ...]
    placement: tuple[SavedBundles, ...]
    prediction: dict[str, Any]
    bounds: dict[str, Any]
    price_per_hour: Amount | None = None
    currency: str = "USD"
    warnings: tuple[str, ...] = ()
    moves: dict[str, Whole] | None = None
    models: dict[str, Any] | None = None
    """What it was planned with, as a model file has it; plans of format 1 have none."""
    definition: dict[str, Any]

    def library(self, where: str = "plan") -> ModelLibrary | None:
        """The models it carries."""
        if self.models is None:
            return None
        return ModelLibrary.of(*parse_models_and_profiles(self.models, f"{where}: models"))

    def threads_by_slot(self) -> dict[Slot, dict[str, int]]:
        return {Slot(row.node, row.slot): dict(row.threads) for row in self.placement}


def write_plan(plan: Plan, path: Path) -> None:
    write_output(path, json.dumps(plan.document(), indent=1) + "\n")


def read_plan(path: Path) -> SavedPlan:
    """A plan file whose placement names only nodes, slots and operators it has, every thread once."""
    return parse_plan(parse_json(read_text(path), str(path)), str(path))


def parse_plan(data: Any, path: str) -> SavedPlan:
    """As `read_plan`, from the plain contents of a file."""
    saved = check(SavedPlan, data, path)
    saved.library(path)
    slots: dict[str, int] = {}
    for position, node in enumerate(saved.nodes):
        if node.name in slots:
            raise BadInputError(f"{path}: nodes[{position}].name: node '{node.name}' is listed twice")
        slots[node.name] = node.slots
    placed = dict.fromkeys(saved.operators, 0)
    seen: set[Slot] = set()
    for position, row in enumerate(saved.placement):
        where = f"{path}: placement[{position}]"
        if row.node not in slots:
            raise BadInputError(f"{where}.node: unknown node '{row.node}'; {nearest(row.node, slots)}")
        if not 0 <= row.slot < slots[row.node]:
            raise BadInputError(
                f"{where}.slot: node '{row.node}' has slots 0 to {slots[row.node] - 1}, found {row.slot}"
            )
        if Slot(row.node, row.slot) in seen:
            raise BadInputError(f"{where}: slot {row.slot} of node '{row.node}' is listed twice")
        seen.add(Slot(row.node, row.slot))
        for name, count in row.threads.items():
            if name not in placed:
                raise BadInputError(f"{where}.threads: unknown operator '{name}'; {nearest(name, placed)}")
            placed[name] += count
    for name, count in placed.items():
        if count != saved.operators[name].threads:
            raise BadInputError(
                f"{path}: placement: operator '{name}' has {saved.operators[name].threads} threads, {count} are placed"
            )
    return saved
