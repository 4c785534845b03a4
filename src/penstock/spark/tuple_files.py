"""Tuples in Arrow files; their payloads are text (`penstock.spark.payloads`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.payloads import of_text, to_text
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
                "payload": pa.array([to_text(item.payload) for item in items], pa.string()),
            }
        ),
    )


def read_tuples(path: Path, first: int, last: int) -> list[Tuple]:
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all().slice(first, last - first)
        payloads = [of_text(text) for text in table["payload"].to_pylist()]
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
