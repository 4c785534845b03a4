"""Where every thread of a whole cluster runs, as `penstock place --json --full` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from penstock.cluster.topology import Slot
from penstock.errors import BadInputError
from penstock.files import Name, Positive, Spec, check, parse_json, read_text
from penstock.planning.file import SavedBundles

if TYPE_CHECKING:
    from pathlib import Path


class SavedRun(Spec):
    """What a placed pipeline runs, and at which rate."""

    pipeline: str
    rate: Positive | None = None


class SavedRuns(Spec):
    runs: dict[Name, SavedRun] = Field(default_factory=dict)


class SavedPlacement(Spec):
    """Of the whole answer only the placement is read."""

    placement: dict[Name, tuple[SavedBundles, ...]]


def read_placement(path: Path) -> dict[str, dict[Slot, dict[str, int]]]:
    return parse_placement(parse_json(read_text(path), str(path)), str(path))


def parse_placement(data: Any, where: str) -> dict[str, dict[Slot, dict[str, int]]]:
    """Threads by slot of every pipeline."""
    if not isinstance(data, dict) or "placement" not in data:
        raise BadInputError(f"{where}: placement: expected what `penstock place --json --full` prints")
    saved = check(SavedPlacement, {"placement": data["placement"]}, where)
    placed: dict[str, dict[Slot, dict[str, int]]] = {}
    held: dict[Slot, str] = {}
    for pipeline, rows in saved.placement.items():
        placed[pipeline] = {}
        for row in rows:
            slot = Slot(row.node, row.slot)
            if slot in held:
                raise BadInputError(f"{where}: placement.{pipeline}: slot {slot} is held by '{held[slot]}' already")
            held[slot] = pipeline
            placed[pipeline][slot] = dict(row.threads)
    return placed


def parse_runs(data: Any, where: str) -> dict[str, SavedRun]:
    """What the placed pipelines run, as far as the file that was placed says so."""
    return check(SavedRuns, {"runs": data.get("runs", {})}, where).runs
