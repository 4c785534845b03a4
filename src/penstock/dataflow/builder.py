"""Pipelines in Python: a chain of calls that reads like the pipeline, or decorators on the functions it runs.

words = (
    pipeline("words")
    .source("lines")
    .then("split", model="split", selectivity=1)
    .then("count", model="count", selectivity=8, grouping="fields", key="word")
    .sink("out")
    .build()
)

clicks = pipeline("clicks")
clicks.source("events")

@clicks.operator(reads="events", model="parse_xml")
def parse(row): ...

clicks.sink("out", reads="parse")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import ValidationError

from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.errors import BadInputError
from penstock.files import describe

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_STREAM_FIELDS = ("selectivity", "selectivities", "constant", "weight", "bytes", "grouping", "key")


class PipelineBuilder:
    """Collects operators and streams; `build` checks them as a whole."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._operators: list[Operator] = []
        self._streams: list[Stream] = []
        self._last: str | None = None

    def source(self, name: str, **fields: Any) -> Self:
        """A source; what follows with `then` reads from it."""
        self._add_operator(name, Kind.SOURCE, fields)
        return self

    def then(self, name: str, *, reads: str | list[str] | None = None, **fields: Any) -> Self:
        """An operator that reads from the one before it, or from those named in `reads`.

        Fields of the stream (selectivity, bytes, grouping, key, ...) and of the operator (model, threads, ...) mix.
        """
        self._add_reader(name, Kind.OPERATOR, reads, fields)
        return self

    def sink(self, name: str, *, reads: str | list[str] | None = None, **fields: Any) -> Self:
        self._add_reader(name, Kind.SINK, reads, fields)
        return self

    def stream(self, sender: str, receiver: str, **fields: Any) -> Self:
        """One more stream between two operators, for shapes a chain cannot say."""
        self._streams.append(self._checked(Stream, sender=sender, receiver=receiver, **fields))
        return self

    def operator(self, *, reads: str | list[str], name: str | None = None, **fields: Any) -> Callable[[F], F]:
        """Decorator: the function (or `logic`) is the operator's code, its name the operator's name unless said."""

        def add(function: F) -> F:
            code = function if isinstance(function, Logic) else Logic(function)
            self._add_reader(name or function.__name__, Kind.OPERATOR, reads, {**fields, "logic": code})
            return function

        return add

    def build(self) -> Pipeline:
        return Pipeline.of(self._name, self._operators, self._streams)

    def _add_reader(self, name: str, kind: Kind, reads: str | list[str] | None, fields: dict[str, Any]) -> None:
        senders = [reads] if isinstance(reads, str) else reads if reads is not None else [self._last]
        stream_fields = {key: fields.pop(key) for key in _STREAM_FIELDS if key in fields}
        for sender in senders:
            if sender is None:
                raise BadInputError(f"pipeline '{self._name}': operator '{name}' has nothing before it to read from")
            self.stream(sender, name, **stream_fields)
        self._add_operator(name, kind, fields)

    def _add_operator(self, name: str, kind: Kind, fields: dict[str, Any]) -> None:
        self._operators.append(self._checked(Operator, name=name, kind=kind, **fields))
        self._last = name

    def _checked(self, shape: type[Any], **fields: Any) -> Any:
        try:
            return shape(**fields)
        except ValidationError as error:
            raise BadInputError(f"pipeline '{self._name}': {describe(error)}") from error


def pipeline(name: str) -> PipelineBuilder:
    return PipelineBuilder(name)
