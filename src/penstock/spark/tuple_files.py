"""Tuples in Arrow files. Payloads are JSON text; where they hold what JSON cannot (bytes, dates), an Arrow struct."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.tuples import Tuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def write_tuples(path: Path, items: Sequence[Tuple]) -> None:
    write_table(
        path,
        pa.table(
            {
                "id": pa.array([item.id for item in items], pa.int64()),
                "due": pa.array([item.due for item in items], pa.float64()),
                "path": pa.array([item.path for item in items], pa.int64()),
                "payload": _payloads(items),
            }
        ),
    )


def _payloads(items: Sequence[Tuple]) -> pa.Array:
    try:
        return pa.array([json.dumps(item.payload) for item in items], pa.string())
    except TypeError:
        return pa.array([item.payload for item in items])


def cannot_travel(payload: object) -> str | None:
    """Why a payload cannot be written; None: it can."""
    try:
        json.dumps(payload)
    except (TypeError, ValueError):
        try:
            pa.array([payload])
        except (pa.ArrowException, TypeError, ValueError) as error:
            return str(error).splitlines()[0]
    return None


def read_tuples(path: Path, first: int, last: int) -> list[Tuple]:
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all().slice(first, last - first)
        payloads = table["payload"].to_pylist()
        if pa.types.is_string(table.schema.field("payload").type):
            payloads = [json.loads(text) for text in payloads]
        return [
            Tuple(*row)
            for row in zip(
                table["id"].to_pylist(), table["due"].to_pylist(), table["path"].to_pylist(), payloads, strict=True
            )
        ]


def write_table(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_table(path: Path) -> pa.Table:
    """All of a file, in memory: it may be deleted right after."""
    return pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()
