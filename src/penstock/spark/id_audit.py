"""The audit of ids, in little memory: which source tuples came out, at which sink, on which path.

Sets of ids are roaring bitmaps: a stretch of consecutive ids costs a few bytes, whatever its length.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from pyroaring import BitMap64

from penstock.report.report import Audit

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


class IdAudit:
    """Tuples made by an aggregation descend from many and have ids below 0: they are counted where they are sent and
    read, not here."""

    def __init__(self) -> None:
        self._accounted = BitMap64()
        self._delivered: dict[str, BitMap64] = {}
        self.duplicated = 0
        self.counts: dict[str, int] = {}

    def fold(self, outcome: pa.Table) -> None:
        """Take in what became of the tuples of one ticket."""
        for kind, count in zip(*np.unique(outcome["kind"].to_numpy(), return_counts=True), strict=True):
            self.counts[str(kind)] = self.counts.get(str(kind), 0) + int(count)
        known = outcome.filter(pc.greater_equal(outcome["id"], 0))
        self._accounted.update(known["id"].to_numpy())
        delivered = known.filter(pc.equal(known["kind"], "delivered"))
        groups = delivered.group_by(["operator", "path"]).aggregate([("id", "list")])
        for operator, path, ids in zip(
            groups["operator"].to_pylist(), groups["path"].to_pylist(), groups["id_list"], strict=True
        ):
            values = ids.values.to_numpy()
            found = BitMap64(values)
            before = self._delivered.setdefault(f"{path} {operator}", BitMap64())
            self.duplicated += len(values) - len(found) + found.intersection_cardinality(before)
            before |= found

    def absorb(self, ids: NDArray[np.int64]) -> None:
        """Tuples an aggregation took in."""
        self.counts["absorbed"] = self.counts.get("absorbed", 0) + len(ids)
        self._accounted.update(ids[ids >= 0])

    def audit(self, emitted: int, unread: int) -> Audit:
        """`emitted`: tuples the sources sent; `unread`: rows that were sent and never read."""
        accounted = self._accounted.range_cardinality(0, emitted) if emitted else 0
        return Audit(
            emitted=emitted,
            lost=emitted - accounted + unread,
            duplicated=self.duplicated,
            dead=self.counts.get("dead", 0),
            filtered=self.counts.get("filtered", 0),
        )

    def document(self) -> dict[str, Any]:
        return {
            "accounted": _text(self._accounted),
            "delivered": {key: _text(ids) for key, ids in self._delivered.items()},
            "duplicated": self.duplicated,
            "counts": self.counts,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> IdAudit:
        made = cls()
        made._accounted = _ids(document["accounted"])
        made._delivered = {key: _ids(text) for key, text in document["delivered"].items()}
        made.duplicated = document["duplicated"]
        made.counts = dict(document["counts"])
        return made

    def text(self) -> str:
        return json.dumps(self.document())


def _text(ids: BitMap64) -> str:
    ids.run_optimize()
    return base64.b64encode(ids.serialize()).decode("ascii")


def _ids(text: str) -> BitMap64:
    found: BitMap64 = BitMap64.deserialize(base64.b64decode(text))
    return found
