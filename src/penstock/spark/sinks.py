"""What sinks do with tuples beside counting them: Parquet files, a sample for the console, files of dead letters.

Files are written where the task runs, under a name made of the run, the batch and the partition, and moved into place
whole: a batch that Spark runs again replaces its own files, and a reader never sees half a file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.clock import Stopwatch
from penstock.errors import BadInputError
from penstock.files import atomic_path
from penstock.spark.calls import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.spark.segment import Result
    from penstock.spark.tuples import Tuple

ID_COLUMN = "penstock_id"
"""The column of a Parquet sink with the number of the source tuple a row descends from."""
SAMPLE_ROWS = 3
"""Tuples of a console sink that one task shows of one batch."""
PRINTED_PER_SECOND = 5


@dataclass(frozen=True, slots=True)
class TaskName:
    """Which run, batch and partition: the same for every attempt at the same work."""

    run: str
    batch: int
    partition: int

    def file(self, folder: str, ending: str) -> Path:
        return Path(folder) / f"{self.run}-{self.batch:09d}-{self.partition:05d}{ending}"


@dataclass(frozen=True, slots=True)
class Sink:
    """What a sink was asked for. Without a `schema` the columns are those of the tuples in each file."""

    name: str
    parquet: str | None = None
    console: bool = False
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """All sinks of a pipeline that do more than count, and where dead letters go."""

    sinks: tuple[Sink, ...] = ()
    dead_letters: str | None = None

    def take(self, result: Result, task: TaskName) -> list[tuple[str, str]]:
        """Write what is to be written of one batch; returns (sink, tuple as text) for those shown on the console.

        A tuple that does not fit the columns of its sink becomes a dead letter of that sink.
        """
        shown: list[tuple[str, str]] = []
        for sink in self.sinks:
            delivered = result.delivered.get(sink.name, [])
            if sink.parquet is not None:
                fitting, table = _table(sink, delivered, result)
                result.delivered[sink.name] = fitting
                _write_parquet(table, task.file(sink.parquet, ".parquet"))
            if sink.console:
                shown += [(sink.name, _text(_plain(item.payload))) for item in delivered[:SAMPLE_ROWS]]
        if self.dead_letters is not None:
            _write_letters(result.dead, task.file(self.dead_letters, ".jsonl"))
        return shown

    @property
    def folders(self) -> list[str]:
        found = [sink.parquet for sink in self.sinks if sink.parquet is not None]
        return found if self.dead_letters is None else [*found, self.dead_letters]

    def make_folders(self) -> None:
        for folder in self.folders:
            try:
                Path(folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BadInputError(f"{folder}: cannot be written: {error.strerror or error}") from error

    def settle(self, run: str, committed: Iterable[int]) -> None:
        """After the run: what a killed task left half done goes, and so do files of batches never committed."""
        kept = set(committed)
        self.sweep(run)
        for folder in map(Path, self.folders):
            for path in folder.glob(f"{run}-*"):
                if int(path.stem.removeprefix(f"{run}-").partition("-")[0]) not in kept:
                    path.unlink(missing_ok=True)

    def sweep(self, run: str) -> None:
        """After a run whose batches all count: only what a killed task left half written goes."""
        for folder in map(Path, self.folders):
            for path in folder.glob(f".{run}-*"):
                path.unlink(missing_ok=True)


def ends_of(
    pipeline: Pipeline,
    logic: Mapping[str, Logic],
    dead_letters: str | Path | None,
    arrow_schema: Callable[[str], pa.Schema],
) -> Ends:
    """What the pipeline's sinks ask for. `arrow_schema` reads a schema in Spark's words."""
    sinks = []
    for name, operator in pipeline.operators.items():
        if operator.parquet is None and not operator.console:
            continue
        folder = None if operator.parquet is None else str(Path(operator.parquet).absolute())
        declared = {logic[s.sender].schema if s.sender in logic else None for s in pipeline.inputs(name)}
        words = declared.pop() if len(declared) == 1 else None
        schema = None if words is None or folder is None else arrow_schema(words)
        sinks.append(Sink(name, folder, operator.console, schema))
    return Ends(tuple(sinks), None if dead_letters is None else str(Path(dead_letters).absolute()))


_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises about a value that does not fit a column."""


def _table(sink: Sink, delivered: list[Tuple], result: Result) -> tuple[list[Tuple], pa.Table | None]:
    """The tuples that fit the sink's columns, and the table of them; the others become dead letters."""
    if not delivered:
        return [], None
    schema = sink.schema or _inferred([item.payload for item in delivered])
    if ID_COLUMN not in schema.names:
        schema = schema.append(pa.field(ID_COLUMN, pa.int64()))
    try:
        return delivered, _rows(delivered, schema)
    except _UNFIT:
        fitting: list[Tuple] = []
        for item in delivered:
            try:
                _rows([item], schema)
            except _UNFIT as error:
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                result.dead.append(DeadLetter(sink.name, item, text))
                result.counts[sink.name].dead += 1
                result.counts[sink.name].sent -= 1
            else:
                fitting.append(item)
        return fitting, _rows(fitting, schema) if fitting else None


def _inferred(payloads: list[dict[str, Any]]) -> pa.Schema:
    """Every column any of them has; where its values have no type in common, the type of the first that has one."""
    columns = dict.fromkeys(column for payload in payloads for column in payload)
    fields = []
    for column in columns:
        values = [payload[column] for payload in payloads if payload.get(column) is not None]
        fields.append(pa.field(str(column), _type(values)))
    return pa.schema(fields)


def _type(values: list[Any]) -> pa.DataType:
    for some in (values, *([value] for value in values)):
        try:
            return pa.infer_type(some)
        except _UNFIT:
            continue
    return pa.null()


def _rows(items: list[Tuple], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{**item.payload, ID_COLUMN: item.id} for item in items], schema=schema)


def _write_parquet(table: pa.Table | None, path: Path) -> None:
    if table is None:
        path.unlink(missing_ok=True)
        return
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)


def _write_letters(letters: list[DeadLetter], path: Path) -> None:
    if not letters:
        path.unlink(missing_ok=True)
        return
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for letter in letters:
            row = {
                "operator": letter.operator,
                "id": letter.tuple.id,
                "payload": _plain(letter.tuple.payload),
                "error": letter.error,
            }
            file.write(_text(row) + "\n")


def _plain(payload: dict[str, Any]) -> Any:
    """The payload where JSON can say it, else its text."""
    try:
        _text(payload)
    except (TypeError, ValueError, RecursionError):
        return repr(payload)
    return payload


def _text(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


@dataclass
class Sample:
    """Passes on a few tuples per second, whatever arrives."""

    show: Callable[[str, str], None]
    per_second: int = PRINTED_PER_SECOND
    _since: Stopwatch = field(default_factory=Stopwatch)
    _left: int = PRINTED_PER_SECOND

    def take(self, shown: Iterable[tuple[str, str]]) -> None:
        if self._since.seconds() >= 1.0:
            self._since, self._left = Stopwatch(), self.per_second
        for sink, text in shown:
            if self._left > 0:
                self._left -= 1
                self.show(sink, text)
