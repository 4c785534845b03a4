"""What `penstock place --json --full` decided, as plans that can be run: one for every pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.dataflow.file import pipeline_document
from penstock.errors import BadInputError, nearest
from penstock.files import read_document
from penstock.jobs.find import find_code_beside, find_pipeline
from penstock.planning.file import SavedPlan
from penstock.planning.placement_file import parse_placement, parse_runs
from penstock.planning.plan import PLAN_FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot

ASSUMED_RATE = 100.0
"""Tuples/s of what nobody gave a rate."""


def is_placed_file(path: str | Path) -> bool:
    """Whether it holds the placements of many pipelines; a plan holds that of one, in rows."""
    if Path(path).suffix != ".json" or not Path(path).is_file():
        return False
    document = read_document(Path(path))
    return isinstance(document, dict) and isinstance(document.get("placement"), dict)


def placed_plans(path: str | Path) -> dict[str, SavedPlan]:
    """A plan for every placed pipeline, by its name."""
    document = read_document(Path(path))
    placed = parse_placement(document, str(path))
    runs = parse_runs(document, str(path))
    missing = [name for name in placed if name not in runs]
    if missing:
        raise BadInputError(
            f"{path}: nothing says what pipeline '{missing[0]}' runs; give it `pipeline:` in the file that is placed"
        )
    return {name: _plan(name, rows, runs[name], path) for name, rows in placed.items()}


def one_placed_plan(path: str | Path, pipeline: str | None) -> SavedPlan:
    plans = placed_plans(path)
    if pipeline is None and len(plans) > 1:
        names = ", ".join(plans)
        raise BadInputError(f"{path}: {len(plans)} pipelines ({names}): name one, or `penstock submit` all of them")
    name = next(iter(plans), None) if pipeline is None else pipeline
    if name is None or name not in plans:
        raise BadInputError(f"{path}: no pipeline '{name}' is placed; {nearest(name or '', plans)}")
    # whoever asks for one runs it
    find_code_beside(path)
    find_code_beside(parse_runs(read_document(Path(path)), str(path))[name].pipeline)
    return plans[name]


def _plan(name: str, rows: Mapping[Slot, Mapping[str, int]], run: Any, path: str | Path) -> SavedPlan:
    pipeline = find_pipeline(run.pipeline)
    threads = {operator: sum(row.get(operator, 0) for row in rows.values()) for operator in pipeline.operators}
    placed = {operator for row in rows.values() for operator in row}
    if placed != set(pipeline.operators):
        odd = min(placed ^ set(pipeline.operators))
        raise BadInputError(
            f"{path}: pipeline '{name}': operator '{odd}' is not in both the placement and '{run.pipeline}'"
        )
    slots: dict[str, int] = {}
    for slot in rows:
        slots[slot.node] = max(slots.get(slot.node, 0), slot.number + 1)
    document = {
        "format": PLAN_FORMAT,
        "pipeline": pipeline.name,
        "rate": run.rate or ASSUMED_RATE,
        "allocator": "declared",
        "placer": "placed",
        "operators": {
            operator: {"rate": 0.0, "threads": count, "cpu": 0.0, "memory": 0.0} for operator, count in threads.items()
        },
        "slots": dict.fromkeys(("allocated", "allocated_with_ends", "placed", "acquired", "used"), len(rows)),
        "nodes": [{"name": node, "rack": "r1", "slots": count} for node, count in slots.items()],
        "placement": [{"node": slot.node, "slot": slot.number, "threads": dict(row)} for slot, row in rows.items()],
        "prediction": {},
        "bounds": {},
        "definition": pipeline_document(pipeline),
    }
    return SavedPlan.model_validate(document)
