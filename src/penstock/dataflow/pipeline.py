"""A pipeline: operators joined by streams.

Values only: what is computed from a pipeline (rates, orders) lives in its own module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from penstock.dataflow.aggregate import Aggregate
from penstock.errors import BadInputError, nearest
from penstock.files import Amount, Count, Demand, Name, Spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Kind(StrEnum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


class Grouping(StrEnum):
    """How a stream's tuples are dealt to the threads of its receiver."""

    SHUFFLE = "shuffle"
    """Every thread gets an equal share."""
    SLOT_AWARE = "slot-aware"
    """Every slot gets a share in proportion to what it supports."""
    FIELDS = "fields"
    """By hash of a key: equal keys meet in one thread."""
    PARTIAL_KEY = "partial-key"
    """By key, each key to the less loaded of two threads."""
    LOCAL_OR_SHUFFLE = "local-or-shuffle"
    """To threads on the sender's slot where there are any, else shuffle."""
    ALL = "all"
    """Every thread gets every tuple."""
    GLOBAL = "global"
    """One thread, the first, gets every tuple."""
    DIRECT = "direct"
    """The sender's code names the thread."""


KEYED = frozenset({Grouping.FIELDS, Grouping.PARTIAL_KEY})


class FileFormat(StrEnum):
    """What the files of a source hold: a row is a tuple."""

    JSONL = "jsonl"
    """One JSON object per line."""
    CSV = "csv"
    """A header, then a row per record; all values are text."""
    PARQUET = "parquet"
    TEXT = "text"
    """Lines, each as {"value": line}."""


_ENDINGS = {
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".csv": FileFormat.CSV,
    ".parquet": FileFormat.PARQUET,
    ".txt": FileFormat.TEXT,
}

Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f]+$")]
"""The path of a file or folder, or a pattern of paths."""


class Operator(Spec):
    """One vertex: user logic run once per tuple.

    What a thread of it needs comes from a model, or is declared (`threads`, `cpu`, `memory_mb`, `resources`).
    """

    name: Name
    kind: Kind = Kind.OPERATOR
    model: Name | None = None
    threads: Count | None = None
    cpu: Demand | None = None
    memory_mb: Demand | None = None
    resources: dict[Name, Demand] = Field(default_factory=dict)
    run: Name | None = None
    """Where the code is, as module:attribute; looked up only when the pipeline is run."""
    aggregate: Aggregate | None = None
    """Keyed aggregation instead of code."""
    files: Place | None = None
    """Of a source: the files its tuples come from, as a pattern (`data/*.jsonl`); otherwise tuples are numbers."""
    format: FileFormat | None = None
    """What the files hold; said by their ending where it is not given."""
    parquet: Place | None = None
    """Of a sink: the folder its tuples are written to."""
    console: bool = False
    """Of a sink: print a few of its tuples every second."""
    logic: Annotated[Any, Field(exclude=True, repr=False)] = None
    """The code itself (`Logic`), where the pipeline was built in Python; a file cannot carry any."""

    @model_validator(mode="after")
    def _either_model_or_declared(self) -> Self:
        if self.model is not None and self.is_declared:
            raise ValueError(
                f"operator '{self.name}' names model '{self.model}' and also declares threads or demands; keep one"
            )
        if self.aggregate is not None and (self.run is not None or self.logic is not None):
            raise ValueError(f"operator '{self.name}' has an aggregate and code; keep one")
        if self.aggregate is not None and self.kind is not Kind.OPERATOR:
            raise ValueError(f"operator '{self.name}' is a {self.kind}; only operators aggregate")
        if self.is_declared and (self.threads is None or self.cpu is None or self.memory_mb is None):
            raise ValueError(f"operator '{self.name}' declares its demand: expected all of threads, cpu and memory_mb")
        return self

    @model_validator(mode="after")
    def _ends_only_at_the_ends(self) -> Self:
        given = [key for key in ("files", "format", "parquet", "console") if getattr(self, key)]
        for key in given:
            kind = Kind.SOURCE if key in {"files", "format"} else Kind.SINK
            if self.kind is not kind:
                raise ValueError(f"operator '{self.name}': '{key}' belongs to a {kind}, and its kind is {self.kind}")
        if self.format is not None and self.files is None:
            raise ValueError(f"source '{self.name}': a format means something only with files")
        if self.files is not None and (self.run is not None or self.logic is not None):
            raise ValueError(f"source '{self.name}' names files and also code; keep one")
        if self.files is not None and self.file_format is None:
            raise ValueError(
                f"source '{self.name}': the ending of '{self.files}' does not say what the files hold; "
                f"give format: {', '.join(FileFormat)}"
            )
        return self

    @property
    def file_format(self) -> FileFormat | None:
        """As given, else by the ending of the files."""
        return self.format or (_ENDINGS.get(PurePath(self.files).suffix.lower()) if self.files else None)

    @property
    def is_declared(self) -> bool:
        declared = (self.threads, self.cpu, self.memory_mb)
        return any(value is not None for value in declared) or bool(self.resources)


class Stream(Spec):
    """One edge. It carries `weight * (selectivity * in + constant)` tuples/s; `in` is what its sender receives."""

    sender: Annotated[str, Field(alias="from")]
    receiver: Annotated[str, Field(alias="to")]
    selectivity: Amount = 1.0
    selectivities: dict[Name, Amount] = Field(default_factory=dict)
    """Another selectivity for what its sender receives from the operators named here."""
    constant: Amount = 0.0
    weight: Amount = 1.0
    """The part of its sender's output that takes this stream."""
    bytes: Amount = 0.0
    """Size of one tuple; 0: moving it costs nothing."""
    grouping: Grouping = Grouping.SHUFFLE
    key: Name | None = None

    @model_validator(mode="after")
    def _key_where_needed(self) -> Self:
        if self.grouping in KEYED and self.key is None:
            raise ValueError(f"stream {self}: grouping '{self.grouping}' needs a key")
        if self.grouping not in KEYED and self.key is not None:
            raise ValueError(f"stream {self}: a key means something only with grouping fields or partial-key")
        return self

    def __str__(self) -> str:
        return f"'{self.sender}' -> '{self.receiver}'"


@dataclass(frozen=True)
class Pipeline:
    """Operators by name in declared order, and streams in declared order. May have cycles and parallel streams."""

    name: str
    operators: Mapping[str, Operator]
    streams: tuple[Stream, ...]
    _inputs: Mapping[str, tuple[Stream, ...]] = field(init=False, repr=False, compare=False)
    _outputs: Mapping[str, tuple[Stream, ...]] = field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, name: str, operators: Iterable[Operator], streams: Iterable[Stream]) -> Pipeline:
        table: dict[str, Operator] = {}
        for operator in operators:
            if operator.name in table:
                raise BadInputError(f"pipeline '{name}': operator '{operator.name}' is declared twice")
            table[operator.name] = operator
        return cls(name, MappingProxyType(table), tuple(streams))

    def __post_init__(self) -> None:
        inputs: dict[str, list[Stream]] = {name: [] for name in self.operators}
        outputs: dict[str, list[Stream]] = {name: [] for name in self.operators}
        if not self.operators:
            raise BadInputError(f"pipeline '{self.name}': expected at least one operator")
        for position, stream in enumerate(self.streams):
            for side, end in (("from", stream.sender), ("to", stream.receiver)):
                if end not in self.operators:
                    known = nearest(end, self.operators)
                    raise BadInputError(
                        f"pipeline '{self.name}': streams[{position}].{side}: unknown operator '{end}'; {known}"
                    )
            outputs[stream.sender].append(stream)
            inputs[stream.receiver].append(stream)
        for position, stream in enumerate(self.streams):
            senders = [given.sender for given in inputs[stream.sender]]
            for name in stream.selectivities:
                if name not in senders:
                    raise BadInputError(
                        f"pipeline '{self.name}': streams[{position}].selectivities: '{stream.sender}' receives "
                        f"nothing from '{name}'; {nearest(name, senders)}"
                    )
        for name, operator in self.operators.items():
            if operator.kind is Kind.SOURCE and inputs[name]:
                raise BadInputError(
                    f"pipeline '{self.name}': source '{name}' receives stream {inputs[name][0]}; a source has no input"
                )
            if operator.kind is Kind.SINK and outputs[name]:
                raise BadInputError(
                    f"pipeline '{self.name}': sink '{name}' sends stream {outputs[name][0]}; a sink has no output"
                )
        object.__setattr__(self, "_inputs", {name: tuple(found) for name, found in inputs.items()})
        object.__setattr__(self, "_outputs", {name: tuple(found) for name, found in outputs.items()})

    def inputs(self, operator: str) -> tuple[Stream, ...]:
        return self._inputs[operator]

    def outputs(self, operator: str) -> tuple[Stream, ...]:
        return self._outputs[operator]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(name for name, operator in self.operators.items() if operator.kind is Kind.SOURCE)
