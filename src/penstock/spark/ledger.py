"""What came out of a run, batch by batch: counted, timed, and written down so that ids can be audited.

A batch is written to a file named by its number: one that Spark runs again takes the place of its first attempt.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import now
from penstock.files import atomic_path
from penstock.report.report import Audit, BatchObservation, OperatorObservation, SlotObservation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

_AUDITED = ("kind", "operator", "id", "path")


class Ledger:
    """`due` says how many tuples were due at a time (seconds since the epoch); `show` hears what consoles show."""

    def __init__(
        self,
        folder: Path,
        due: Callable[[float], int] | None = None,
        show: Callable[[list[tuple[str, str]]], None] | None = None,
    ) -> None:
        self._folder = folder
        self._due = due
        self._show = show
        self._batches: dict[int, BatchObservation] = {}
        self.first_error: str | None = None
        """Of the dead letters."""
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def batches(self) -> list[BatchObservation]:
        return [self._batches[number] for number in sorted(self._batches)]

    @property
    def committed(self) -> list[int]:
        """Numbers of the batches written."""
        return sorted(self._batches)

    @property
    def taken(self) -> int:
        """Source tuples taken in so far."""
        return sum(batch.tuples for batch in self.batches)

    def write(self, frame: DataFrame, number: int) -> None:
        """For `foreachBatch`. A batch that held nothing (Spark may begin with one) is nothing to observe."""
        table = frame.toArrow()
        kinds = table["kind"]
        tuples = table.filter(pc.is_in(kinds, pa.array(["delivered", "dead", "filtered"])))
        audited = tuples.select(_AUDITED)
        with (
            atomic_path(self._folder / f"{number:09d}.arrow") as temporary,
            pa.OSFile(str(temporary), "wb") as file,
            pa.ipc.new_file(file, audited.schema) as writer,
        ):
            writer.write_table(audited)
        delivered = table.filter(pc.equal(kinds, "delivered"))
        slots = table.filter(pc.equal(kinds, "slot"))
        counts = table.filter(pc.equal(kinds, "count"))
        if self.first_error is None:
            errors = table.filter(pc.equal(kinds, "dead"))["text"]
            self.first_error = errors[0].as_py() if len(errors) else None
        used = [json.loads(text) for text in slots["text"].to_pylist()]
        began = min((slot.pop("began", now()) for slot in used), default=now())
        tuples = sum(slots["id"].to_pylist())
        if not tuples and not audited.num_rows:
            return
        before = sum(batch.tuples for other, batch in self._batches.items() if other < number)
        if self._show is not None:
            shown = table.filter(pc.equal(kinds, "shown"))
            self._show(list(zip(shown["operator"].to_pylist(), shown["text"].to_pylist(), strict=True)))
        self._batches[number] = BatchObservation(
            finished=now(),
            tuples=tuples,
            backlog=0 if self._due is None else max(0, self._due(began) - before - tuples),
            latencies=np.asarray(delivered["done"]) - np.asarray(delivered["due"]),
            operators=_operators(counts["operator"].to_pylist(), counts["text"].to_pylist()),
            slots=tuple(SlotObservation(**slot) for slot in used),
        )

    def audit(self) -> Audit:
        """Every id up to the highest seen must have been delivered, filtered or become a dead letter; no sink may have
        seen one id on one path twice."""
        tables = [
            pa.ipc.open_file(pa.memory_map(str(file))).read_all() for file in sorted(self._folder.glob("*.arrow"))
        ]
        if not tables:
            return Audit(0, 0, 0, 0, 0)
        table = pa.concat_tables(tables)
        emitted = (pc.max(table["id"]).as_py() or 0) + 1 if table.num_rows else 0
        accounted = pc.count_distinct(table["id"]).as_py()
        delivered = table.filter(pc.equal(table["kind"], "delivered"))
        distinct = delivered.group_by(["operator", "id", "path"]).aggregate([]).num_rows
        kinds = {kind: pc.sum(pc.equal(table["kind"], kind)).as_py() or 0 for kind in ("dead", "filtered")}
        return Audit(
            emitted=emitted,
            lost=emitted - accounted,
            duplicated=delivered.num_rows - distinct,
            dead=kinds["dead"],
            filtered=kinds["filtered"],
        )


def _operators(names: list[str], texts: list[str]) -> dict[str, OperatorObservation]:
    summed: dict[str, dict[str, float]] = {}
    for name, text in zip(names, texts, strict=True):
        row = summed.setdefault(name, {})
        for key, value in json.loads(text).items():
            row[key] = row.get(key, 0) + value
    return {name: OperatorObservation(**row) for name, row in summed.items()}  # type: ignore[arg-type] # counts are whole
