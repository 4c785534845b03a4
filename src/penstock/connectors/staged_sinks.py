"""Sinks that commit by epoch: rows are staged where nobody looks, and get the name people read when the epoch commits.

Staged files carry the conductor, generation and epoch they belong to: what an epoch that never committed staged is
never given a name, and a process that was given up writes under names of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.log.publishing import PREFIX, STAGED_SCHEMA, as_messages, fill
from penstock.connectors.storage import storage
from penstock.digits import is_whole
from penstock.flow.commit import Output

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from penstock.connectors.log.publishing import TopicSink
    from penstock.runtime.batch import Batch

ID_COLUMN = "penstock_id"
"""The number of the source tuple a row descends from."""
STAGED = "_staged"
"""Readers pass over names that begin with an underscore."""
PART_BYTES = 64 * 2**20
"""An epoch's rows of one sink are written down when they are as many bytes, not held until the epoch is over."""


FRAME_PREFIX = "frame:"
"""What an output's sink begins with where Spark writes the rows, once their epoch is committed."""


@dataclass(frozen=True, slots=True)
class SinkFiles:
    """Where the rows of one sink go: a folder of Parquet or JSON files."""

    place: str
    format: str
    topic: TopicSink | None = None
    """Instead of files: `place` is where rows are staged."""
    frame_of: str = ""
    """Instead of files: the sink whose writer gets the rows as a frame; `place` is where they are staged."""

    @property
    def ending(self) -> str:
        return {"parquet": ".parquet", "topic": ".arrow"}.get(self.format, ".jsonl")

    @property
    def is_sent_on(self) -> bool:
        """Files only stage the rows: somebody sends them on when their epoch is committed."""
        return self.topic is not None or bool(self.frame_of)

    @property
    def place_committed(self) -> str:
        """What a commit calls it."""
        if self.frame_of:
            return FRAME_PREFIX + self.frame_of
        return self.place if self.topic is None else self.topic.place


@dataclass(frozen=True, slots=True)
class EpochName:
    """What staged files are called after."""

    run: str
    conductor: int
    generation: int
    bundle: str

    def staged(self, epoch: int, part: int, ending: str) -> str:
        return f"{STAGED}/{self.run}-{self.conductor}-{self.generation}-{epoch}-{self._token}-{part}{ending}"

    def final(self, epoch: int, part: int, ending: str) -> str:
        return f"{self.run}-{epoch:09d}-{self._token}-{part}{ending}"

    @property
    def _token(self) -> str:
        return f"{crc32(self.bundle.encode()):08x}"


@dataclass
class _Rows:
    batches: list[Batch] = field(default_factory=list)
    bytes: int = 0


class StagedSinks:
    """The sinks of one bundle in one generation. `take` may be called by any one thread at a time."""

    def __init__(self, sinks: Mapping[str, SinkFiles], name: EpochName) -> None:
        self._sinks = sinks
        self._name = name
        self._rows: dict[str, _Rows] = {}
        self._written: list[Output] = []
        self._parts = 0
        self._epoch = 0

    def begin(self, epoch: int) -> None:
        """What is taken from now on belongs to `epoch`."""
        self._epoch = epoch

    def take(self, sink: str, batch: Batch) -> None:
        if sink not in self._sinks:
            return
        rows = self._rows.setdefault(sink, _Rows())
        rows.batches.append(batch)
        rows.bytes += batch.nbytes
        if rows.bytes >= PART_BYTES:
            del self._rows[sink]
            self._written += self._write(sink, rows.batches, self._epoch)

    def cut(self, epoch: int) -> tuple[dict[str, _Rows], list[Output]]:
        """The epoch is over: what is left of it, and what is written already."""
        rows, self._rows = self._rows, {}
        written, self._written = self._written, []
        self._epoch = epoch + 1
        return rows, written

    def write(self, epoch: int, rows: Mapping[str, _Rows], written: Iterable[Output]) -> tuple[Output, ...]:
        return (*written, *(out for sink, part in rows.items() for out in self._write(sink, part.batches, epoch)))

    def _write(self, sink: str, batches: list[Batch], epoch: int) -> list[Output]:
        files = self._sinks[sink]
        outputs = []
        for table in _tables(batches) if files.topic is None else _messages(batches):
            self._parts += 1
            staged = self._name.staged(epoch, self._parts, files.ending)
            final = str(epoch) if files.is_sent_on else self._name.final(epoch, self._parts, files.ending)
            store = storage(files.place)
            store.write(staged, partial(_FILL[files.format], table))
            outputs.append(Output(sink=files.place_committed, staged=staged, final=final, rows=table.num_rows))
        return outputs


def publish(outputs: Iterable[Output]) -> None:
    """What a commit names gets the name people read; done again it changes nothing."""
    for output in outputs:
        if not output.sink.startswith((PREFIX, FRAME_PREFIX)):
            storage(output.sink).move(output.staged, output.final)


def sweep(place: str, run: str, conductor: int, keep: Collection[str]) -> None:
    """Forget what was staged under conductors before this one and never committed. `keep`: what the last commit names,
    which may still wait to be sent. What one of them stages from now on is the next one's to forget."""
    store = storage(place)
    for path in store.list(STAGED):
        number = Path(path).name.removeprefix(f"{run}-").partition("-")[0]
        if Path(path).name.startswith(f"{run}-") and is_whole(number) and int(number) < conductor and path not in keep:
            store.delete(path)


def _tables(batches: list[Batch]) -> Iterable[pa.Table]:
    """One for every schema there is, with the ids beside the rows where they are known."""
    by_schema: dict[Any, list[pa.RecordBatch]] = {}
    for batch in batches:
        rows = batch.rows
        if batch.ids is not None and ID_COLUMN not in rows.schema.names:
            ids = pa.array(batch.ids, mask=np.asarray(batch.ids) < 0)
            rows = pa.RecordBatch.from_arrays(
                [*rows.columns, ids], schema=rows.schema.append(pa.field(ID_COLUMN, pa.int64()))
            )
        by_schema.setdefault(rows.schema.serialize().to_pybytes(), []).append(rows)
    for parts in by_schema.values():
        yield pa.Table.from_batches(parts)


def _messages(batches: list[Batch]) -> Iterable[pa.Table]:
    yield pa.Table.from_batches([as_messages(batch.rows) for batch in batches], schema=STAGED_SCHEMA)


def _fill_parquet(table: pa.Table, file: Any) -> None:
    pq.write_table(table, file)


def _fill_json(table: pa.Table, file: Any) -> None:
    for row in table.to_pylist():
        file.write((json.dumps(row, default=str, ensure_ascii=False) + "\n").encode())


_FILL = {"parquet": _fill_parquet, "json": _fill_json, "topic": fill}
