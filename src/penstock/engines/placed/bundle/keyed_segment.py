"""A keyed aggregation in a bundle: what a segment is to code, with its state put down once an epoch."""

from __future__ import annotations

import datetime
import json
import re
import threading
import zlib
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.clock import Stopwatch, now, thread_cpu_seconds
from penstock.base.errors import BadInputError
from penstock.connectors.storage import storage
from penstock.dataflow.aggregate import MOST_DIGITS, Emit, decimal_digits, plain_type, ranking_count, top_count
from penstock.engines.placed.flow.keyed_state import KeyedState
from penstock.runtime.account import Account, IdBitmaps
from penstock.runtime.batch import UNTRACED, Batch, Marks
from penstock.runtime.schemas import columns_to_schema, rows_to_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.dataflow.aggregate import Aggregate


# Values of groups that JSON has no word for, as they stand in files of state.


def written_value(value: Any) -> Any:
    """What JSON has no word for."""
    if isinstance(value, bytes):
        return {"penstock bytes": value.hex()}
    if isinstance(value, datetime.datetime):
        return {"penstock moment": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"penstock date": value.isoformat()}
    if isinstance(value, Decimal):
        return {"penstock decimal": str(value)}
    raise TypeError(f"a value of type {type(value).__name__} cannot be kept")


def read_value(kept: dict[str, Any]) -> Any:
    if "penstock bytes" in kept:
        return bytes.fromhex(kept["penstock bytes"])
    if "penstock moment" in kept:
        return datetime.datetime.fromisoformat(kept["penstock moment"])
    if "penstock date" in kept:
        return datetime.date.fromisoformat(kept["penstock date"])
    if "penstock decimal" in kept:
        return Decimal(kept["penstock decimal"])
    return kept


# Schemas of plain types as Arrow has them, without asking Spark: its parser takes a second to load.


_ARROW_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
_FIELD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s+([A-Za-z]+)\s*")


def arrow_type(kind: str) -> pa.DataType:
    """Of a plain type by its name."""
    digits = decimal_digits(kind)
    return _ARROW_TYPES[kind] if digits is None else pa.decimal128(*digits)


def plain_schema(words: str) -> pa.Schema | None:
    """Of `word string, length int`; None where Spark has to say what is meant."""
    fields = []
    for part in words.split(","):
        match = _FIELD.fullmatch(part)
        kind = None if match is None else plain_type(match[2])
        if match is None or kind is None:
            return None
        fields.append((match[1], arrow_type(kind)))
    return pa.schema(fields) if len({name for name, _ in fields}) == len(fields) else None


@dataclass(frozen=True)
class KeyedCode:
    operator: str
    aggregate: Aggregate

    @property
    def takes(self) -> pa.Schema:
        return pa.schema([(name, arrow_type(kind)) for name, kind in self.aggregate.columns.items()])

    @property
    def makes(self) -> pa.Schema:
        """Keys, the window, and what is computed of every group."""
        columns = self.aggregate.columns
        fields = [(name, arrow_type(columns[name])) for name in self.aggregate.keys]
        if self.aggregate.window_seconds is not None:
            fields += [("window_start", pa.float64()), ("window_end", pa.float64())]
        for output, (function, names) in self.aggregate.calls().items():
            if function in {"count", "approx_count_distinct"}:
                kind = pa.int64()
            elif function in {"avg", "stddev"}:
                kind = pa.float64()
            elif ranking_count(function) is not None:
                kind = pa.string()
            elif top_count(function) is not None:
                kind = pa.list_(arrow_type(columns[names[0]]))
            else:
                kind = arrow_type(columns[names[0]])
                if function == "sum":
                    kind = _type_of_sum(kind)
            fields.append((output, kind))
        return pa.schema(fields)


def _type_of_sum(kind: pa.DataType) -> pa.DataType:
    """As Spark has it: a decimal has room for ten digits more."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(MOST_DIGITS, kind.precision + 10), kind.scale)
    return pa.int64() if pa.types.is_integer(kind) else pa.float64()


def sample_groups(code: KeyedCode, table: pa.Table) -> pa.Table:
    """What the aggregation would send of these rows, as if every window were over."""
    state = KeyedState(code.aggregate.model_copy(update={"emit": Emit.UPDATES}))
    for rows in table.select(code.takes.names).cast(code.takes).to_batches():
        state.take(Batch(rows, Marks(None, np.arange(float(rows.num_rows)))))
    return pa.Table.from_pylist(state.end_epoch()[0], schema=code.makes)


@dataclass(frozen=True)
class Snapshot:
    """Groups that changed in an epoch, still to be written."""

    operator: str
    place: str
    path: str
    groups: Mapping[int, Any]

    def write(self) -> dict[str, dict[str, str]]:
        """Where the state of every changed group lies."""
        if not self.groups:
            return {}
        document = {str(group): kept for group, kept in self.groups.items()}
        body = zlib.compress(json.dumps(document, default=written_value).encode(), 1)
        storage(self.place).write(self.path, lambda file: file.write(body))
        return {self.operator: {str(group): self.path for group in self.groups}}


class KeyedSegment:
    """`emit` gets groups when an epoch ends."""

    def __init__(
        self,
        code: KeyedCode,
        place: str,
        label: str,
        states: Mapping[int, str],
        groups: tuple[int, int],
        emit: Callable[[str, Batch], None],
    ) -> None:
        self._code, self._place, self._label, self._emit = code, place, label, emit
        self._lock = threading.Lock()
        self._state = KeyedState(code.aggregate, groups)
        self._state.load(read_states(place, states))
        self._account = self._new_account()

    def feed(self, batch: Batch, entrance: int = -1) -> None:
        watch, cpu = Stopwatch(), thread_cpu_seconds()
        with self._lock:
            names = self._code.takes.names
            rows, misfits = columns_to_schema(batch.rows.select(names), self._code.takes)
            if misfits:
                unfit = np.zeros(len(batch), np.bool_)
                unfit[[misfit.row for misfit in misfits]] = True
                batch = Batch(rows, batch.marks.take(~unfit))
                self._account.count(self._code.operator).dead += len(misfits)
            else:
                batch = Batch(rows, batch.marks)
            self._state.take(batch, now())
            count = self._account.count(self._code.operator)
            count.rows_in += len(batch) + len(misfits)
            busy, used = watch.seconds(), thread_cpu_seconds() - cpu
            count.busy_seconds += busy
            count.cpu_seconds += used
            self._account.sampled(self._code.operator, len(batch) + len(misfits), busy, used)
            if self._account.ids is not None and batch.ids is not None:
                # ids end here: each row sent descends from many
                self._account.ids.delivered_at(self._code.operator, batch.marks)

    def flush(self) -> None:
        with self._lock:
            rows, due = self._state.end_epoch(now())
            count = self._account.count(self._code.operator)
            count.rows_out += len(rows)
            count.filtered += self._state.late
            self._state.late = 0
        if rows:
            made, _ = rows_to_columns(rows, self._code.makes)
            marks = Marks(np.full(len(rows), UNTRACED, np.int64), np.array(due))
            self._emit(self._code.operator, Batch(made, marks))

    def take_account(self) -> Account:
        import psutil  # noqa: PLC0415 - belongs to the extra

        with self._lock:
            account, self._account = self._account, self._new_account()
        account.memory_bytes = psutil.Process().memory_info().rss
        return account

    def snapshot(self, epoch: int) -> Snapshot:
        with self._lock:
            path = f"state/{self._label}-{epoch}.json.z"
            return Snapshot(self._code.operator, self._place, path, self._state.dump_touched())

    def close(self) -> None:
        """It holds nothing open."""

    def _new_account(self) -> Account:
        return Account(ids=IdBitmaps())


def read_states(place: str, states: Mapping[int, str]) -> dict[int, Any]:
    """By key group, from the files that hold them."""
    files: dict[str, Any] = {}
    states_of = {}
    for group, path in states.items():
        if path not in files:
            files[path] = _read_state_file(place, path)
        if str(group) not in files[path]:
            raise BadInputError(f"{place}/{path}: holds no state of key group {group}")
        states_of[group] = files[path][str(group)]
    return states_of


def _read_state_file(place: str, path: str) -> dict[str, Any]:
    try:
        document = json.loads(zlib.decompress(storage(place).read(path)), object_hook=read_value)
    except (zlib.error, ValueError) as error:
        raise BadInputError(f"{place}/{path}: not the state of an aggregation: {error}") from error
    if not isinstance(document, dict):
        raise BadInputError(f"{place}/{path}: not the state of an aggregation: {type(document).__name__}")
    return document
