"""Pipelines in Python: a chain of calls that reads like the pipeline, or decorators on the functions it runs.

words = (
    pipeline("words")
    .source("lines")
    .then("split", model="split", selectivity=1)
    .then("count", model="count", selectivity=8, grouping="fields", key="word")
    .sink("out")
    .build()
)

orders = pipeline("orders")
orders.source("events", format="json", options={"path": "in/"}, schema="user string, amount double")

@orders.operator(reads="events", schema="user string, cents long")
def cents(row): ...

@orders.operator(reads="cents", per="dataframe")
def per_user(frame): return frame.groupBy("user").count()

orders.sink("store", reads="per_user", format="parquet", options={"path": "out/"})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from pydantic import ValidationError

from penstock.base.errors import BadInputError
from penstock.base.files import describe
from penstock.dataflow.formats import reading_of
from penstock.dataflow.logic import Logic, OnError, Per, logic
from penstock.dataflow.pipeline import (
    UNCONSTRAINED,
    Grouping,
    Kind,
    Operator,
    OutputMode,
    Pipeline,
    PipelineConstraints,
    Stream,
    Watermark,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.dataflow.aggregate import Aggregate
    from penstock.dataflow.pipeline import OperatorConstraints


# Keys that would have no effect are rejected when a pipeline is declared.
#
# Plans and runs that are read are not checked: earlier versions accepted such keys, and they do no harm there.


def refuse_unread_keys(operator: Operator) -> None:
    for part in (operator, *operator.chain):
        for keys, why in _unread(part):
            values = {"schema": part.schema_, **{key: getattr(part, key) for key in keys if key != "schema"}}
            given = next((key for key in keys if values[key] is not None), None)
            if given is not None:
                raise BadInputError(f"{part.kind} '{part.name}': {given}: {why}")


def _unread(operator: Operator) -> Iterator[tuple[tuple[str, ...], str]]:
    """Keys, and why they say nothing."""
    of_calls = ("per", "timeout_seconds", "on_error")
    has_code = operator.run is not None or operator.logic is not None
    per = operator.logic.per if isinstance(operator.logic, Logic) else operator.per
    if operator.aggregate is not None:
        yield (
            (*of_calls, "schema"),
            "not beside aggregate: it calls no code, and its outputs say what it sends",
        )
    elif operator.chain:
        yield (*of_calls, "schema"), "not beside chain: each of its parts says it"
    elif operator.kind is not Kind.OPERATOR and not has_code:
        yield of_calls, f"not of a {operator.kind} without code (run): nothing is called"
    if per is Per.DATAFRAME and not operator.is_declared:
        yield ("threads",), f"not with per='{Per.DATAFRAME}': Spark works on the tuples by itself"
    if operator.kind is Kind.SOURCE and not has_code:
        reading = reading_of(operator)
        if reading.is_load:
            yield ("schema",), "not of the load generator: it sends numbers, as value long; or give a format to read"
        elif not operator.is_declared:
            yield ("threads",), "not of a source that Spark reads"
        if reading.of_the_user:
            yield ("schema",), "not beside frame: the frame has its columns"


F = TypeVar("F", bound="Callable[..., Any]")

Option = str | bool | int | float


class StreamFields(TypedDict, total=False):
    """Fields of a stream that its receiver may declare."""

    selectivity: float
    selectivities: Mapping[str, float]
    constant: float
    weight: float
    bytes: float
    grouping: Grouping | str
    key: str


class DemandFields(TypedDict, total=False):
    """Resources of a thread: from a model, or declared."""

    model: str
    threads: int
    cpu: float
    memory_mb: float
    resources: Mapping[str, float]
    constraints: OperatorConstraints | Mapping[str, Any]


class SourceFields(DemandFields, total=False):
    """`frame` is a function from a session to a streaming DataFrame, or module:attribute of one."""

    format: str
    options: Mapping[str, Option]
    schema: str
    watermark: Watermark | tuple[str, str] | Mapping[str, str]
    frame: Callable[[Any], Any] | str
    files: str
    run: str
    logic: Logic | Callable[..., Any]
    per: Per | str
    timeout_seconds: float
    on_error: OnError | str


class CodeFields(StreamFields, DemandFields, total=False):
    """`open` makes what every thread needs once, `close` ends it."""

    per: Per | str
    schema: str
    open: Callable[[], Any]
    close: Callable[[Any], None]
    timeout_seconds: float
    on_error: OnError | str


class OperatorFields(CodeFields, total=False):
    run: str
    logic: Logic | Callable[..., Any]
    aggregate: Aggregate | Mapping[str, Any]


class SinkFields(StreamFields, DemandFields, total=False):
    """`write` is a function of a batch (a DataFrame) and its number, or module:attribute of one."""

    format: str
    options: Mapping[str, Option]
    mode: OutputMode | str
    write: Callable[[Any, int], None] | str
    parquet: str
    console: bool
    run: str
    logic: Logic | Callable[..., Any]
    per: Per | str
    timeout_seconds: float
    on_error: OnError | str


_STREAM_FIELDS = tuple(StreamFields.__annotations__)
_CODE_FIELDS = ("per", "schema", "open", "close", "timeout_seconds", "on_error")


class PipelineBuilder:
    """Collects operators and streams; `build` checks them as a whole."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._operators: list[Operator] = []
        self._streams: list[Stream] = []
        self._last: str | None = None
        self._constraints = UNCONSTRAINED

    def constrain(self, **constraints: Any) -> Self:
        """Set constraints of the pipeline as a whole: the keys of `PipelineConstraints`."""
        try:
            self._constraints = PipelineConstraints.model_validate(constraints)
        except ValidationError as error:
            raise BadInputError(f"pipeline '{self._name}': constraints: {describe(error)}") from error
        return self

    def source(self, name: str, **fields: Unpack[SourceFields]) -> Self:
        """A source; what follows with `then` reads from it."""
        self._add_operator(name, Kind.SOURCE, dict(fields))
        return self

    def then(self, name: str, *, reads: str | list[str] | None = None, **fields: Unpack[OperatorFields]) -> Self:
        """An operator that reads from the one before it, or from those named in `reads`.

        Fields of the stream (selectivity, bytes, grouping, key, ...) and of the operator (model, threads, ...) mix.
        """
        self._add_reader(name, Kind.OPERATOR, reads, dict(fields))
        return self

    def sink(self, name: str, *, reads: str | list[str] | None = None, **fields: Unpack[SinkFields]) -> Self:
        self._add_reader(name, Kind.SINK, reads, dict(fields))
        return self

    def stream(self, sender: str, receiver: str, **fields: Unpack[StreamFields]) -> Self:
        """One more stream between two operators, for shapes a chain cannot say."""
        self._streams.append(self._checked(Stream, sender=sender, receiver=receiver, **fields))
        return self

    def operator(
        self, *, reads: str | list[str], name: str | None = None, **fields: Unpack[CodeFields]
    ) -> Callable[[F], F]:
        """Decorate the code of an operator: a function or a `Logic`. Its name is the operator's name unless `name` is
        given."""

        def add(function: F) -> F:
            self._add_reader(name or function.__name__, Kind.OPERATOR, reads, {**fields, "logic": function})
            return function

        return add

    def build(self) -> Pipeline:
        return Pipeline.of(self._name, self._operators, self._streams, self._constraints)

    def _add_reader(self, name: str, kind: Kind, reads: str | list[str] | None, fields: dict[str, Any]) -> None:
        senders = [reads] if isinstance(reads, str) else reads if reads is not None else [self._last]
        stream_fields = {key: fields.pop(key) for key in _STREAM_FIELDS if key in fields}
        for sender in senders:
            if sender is None:
                raise BadInputError(f"pipeline '{self._name}': operator '{name}' has nothing before it to read from")
            self._streams.append(self._checked(Stream, sender=sender, receiver=name, **stream_fields))
        self._add_operator(name, kind, fields)

    def _add_operator(self, name: str, kind: Kind, fields: dict[str, Any]) -> None:
        for key in ("frame", "write"):
            if callable(fields.get(key)):
                fields[f"{key}_code"] = fields.pop(key)
        if isinstance(fields.get("watermark"), tuple):
            fields["watermark"] = dict(zip(("field", "delay"), fields["watermark"], strict=False))
        if "logic" in fields:
            fields["logic"] = self._code(name, fields)
        operator = self._checked(Operator, name=name, kind=kind, **fields)
        try:
            refuse_unread_keys(operator)
        except BadInputError as error:
            raise BadInputError(f"pipeline '{self._name}': {error}") from error
        self._operators.append(operator)
        self._last = name

    def _code(self, name: str, fields: dict[str, Any]) -> Logic:
        """Return the code with the fields given beside it; a `Logic` keeps its own value of each field that is not
        given."""
        code = fields["logic"]
        settings = {key: fields.pop(key) for key in _CODE_FIELDS if key in fields}
        if not callable(code):
            raise BadInputError(
                f"pipeline '{self._name}': operator '{name}': logic: expected a function, found {type(code).__name__}"
            )
        try:
            return code.with_fields(**settings) if isinstance(code, Logic) else logic(**settings)(code)
        except BadInputError as error:
            raise BadInputError(f"pipeline '{self._name}': operator '{name}': {error}") from error

    def _checked(self, shape: type[Any], **fields: Any) -> Any:
        try:
            return shape(**fields)
        except ValidationError as error:
            raise BadInputError(f"pipeline '{self._name}': {describe(error)}") from error


def pipeline(name: str) -> PipelineBuilder:
    return PipelineBuilder(name)
