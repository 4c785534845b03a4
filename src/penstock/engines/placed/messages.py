"""The messages between the conductor of a placed run and its bundles, and their encoding.

A message travels as the name of its class, a space, and its fields as JSON. Decoding is strict: an unknown message, an
unknown or missing field, or a value of another type raises a MessageError that names it. Nothing is unpickled.

    greetings   BundleHello (bundle to conductor), LinkHello (bundle to bundle): sent once, with the handshake
    orders      conductor to bundle
    reports     bundle to conductor; a StagedReport is followed by the account of its epoch, as bytes
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - read when messages are decoded
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, PlainSerializer, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import describe, quoted
from penstock.connectors.commit import Output  # noqa: TC001 - read when messages are decoded
from penstock.dataflow.load import Load  # noqa: TC001
from penstock.engines.placed.flow.layout import Channel  # noqa: TC001
from penstock.engines.placed.flow.routing import Route  # noqa: TC001
from penstock.engines.placed.wire import LARGEST_TEXT, MAX_GREETING, Address


class MessageError(ValueError):
    """Bytes that are not one of the expected messages, or a message that cannot be encoded."""


Text = Annotated[str, PlainSerializer(lambda text: text.encode(errors="replace").decode())]
"""Text of other people's code or errors, which may hold half characters: those are replaced by '?'."""


class Message:
    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants")


# Greetings.


@dataclass(frozen=True, slots=True)
class TaskPlace(Message):
    """The process of a bundle, and where Spark says that its task runs."""

    pid: int
    java: int | None = None
    """The process id of its executor."""
    resources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The addresses that the task holds, by name of the resource."""
    executor: str | None = None
    worker: str | None = None
    """The URL of the Worker that started the executor."""


@dataclass(frozen=True, slots=True)
class BundleHello(Message):
    bundle: str
    start: int
    """The number of this start of the bundle."""
    address: Address
    """The address at which neighbours reach the bundle."""
    place: TaskPlace


@dataclass(frozen=True, slots=True)
class LinkHello(Message):
    generation: int
    channel: Channel


# Orders of the conductor.


@dataclass(frozen=True, slots=True)
class GenerationOrder(Message):
    """Drop everything, and link up as this generation."""

    run: str
    conductor: int
    generation: int
    epoch: int
    """The last that was committed."""
    inputs: frozenset[Channel]
    outputs: tuple[tuple[Channel, Address], ...]
    """Channels to neighbours, with the addresses of their receivers."""
    routes: tuple[Route, ...]
    threads: Mapping[str, int]
    """Threads by operator."""
    offsets: Mapping[str, int]
    states: Mapping[int, str]
    """The path of the state of each key group."""
    groups: tuple[int, int]
    """The first key group, and the one after the last."""
    held: bool
    """Sources wait for a GoOrder."""
    careful: bool
    """Find the row that kills the bundle's processes."""
    load: Load
    began: float
    """When the load began."""
    limit: int | None
    """Tuples there are; None: no end."""
    checkpoint: str
    """The place for state."""


@dataclass(frozen=True, slots=True)
class EpochOrder(Message):
    """Put the marker of an epoch into the streams of the sources."""

    generation: int
    epoch: int
    hold: bool
    """Emit nothing after the marker."""


@dataclass(frozen=True, slots=True)
class GoOrder(Message):
    """Emit again after a hold."""

    generation: int


@dataclass(frozen=True, slots=True)
class LimitOrder(Message):
    """The number of tuples there are by now."""

    limit: int


@dataclass(frozen=True, slots=True)
class WatchOrder(Message):
    """Count rows whose field is above a threshold; (field, threshold) by the number of the request."""

    fields: Mapping[int, tuple[str, float]]


@dataclass(frozen=True, slots=True)
class EndOrder(Message):
    """End the process."""


Order = GenerationOrder | EpochOrder | GoOrder | LimitOrder | WatchOrder | EndOrder


# Reports of a bundle.


@dataclass(frozen=True, slots=True)
class BeatReport(Message):
    """The bundle is alive."""

    used: Mapping[str, float]
    """CPU seconds and memory of its slot; empty if they are not measured."""


@dataclass(frozen=True, slots=True)
class LinkedReport(Message):
    """All links of a generation are up."""

    generation: int


@dataclass(frozen=True, slots=True)
class BrokenReport(Message):
    """A link of a generation broke."""

    generation: int
    reason: Text


@dataclass(frozen=True, slots=True)
class FirstReport(Message):
    """The first tuple of a generation reached a sink."""

    generation: int


@dataclass(frozen=True, slots=True)
class GaveUpReport(Message):
    """The bundle's own code stopped the pipeline."""

    generation: int
    reason: Text


@dataclass(frozen=True, slots=True)
class StagedReport(Message):
    """An epoch is staged. The first three fields after its number go into the commit, the others to observers."""

    generation: int
    epoch: int
    offsets: Mapping[str, int | None] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    shown: tuple[tuple[str, Text], ...] = ()
    """Rows for the console, as (sink, row)."""
    hops: Mapping[int, int] = field(default_factory=dict)
    """Counts by bin of a histogram."""
    watched: tuple[tuple[int, int, int], ...] = ()
    """(number, rows above the threshold, rows) of the fields that are watched."""
    lag: Mapping[str, int] = field(default_factory=dict)
    """Messages that wait, by source/topic/partition."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """Messages that retention deleted before they were read, by source/topic/partition."""
    notes: tuple[Text, ...] = ()


Report = BeatReport | LinkedReport | BrokenReport | FirstReport | GaveUpReport | StagedReport


M = TypeVar("M", bound=Message)


class Codec(Generic[M]):
    """Encodes and decodes the messages of one direction, of at most `max_bytes` each."""

    def __init__(self, max_bytes: int, *classes: type[M]) -> None:
        self._max_bytes = max_bytes
        self._adapters = {kind.__name__: TypeAdapter[M](kind) for kind in classes}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._adapters)

    def encode(self, message: M) -> bytes:
        name = type(message).__name__
        if name not in self._adapters:
            raise MessageError(f"message '{name}' is not sent here; expected {', '.join(self._adapters)}")
        try:
            body = self._adapters[name].dump_json(message, warnings="error")
        except PydanticSerializationError as error:
            raise MessageError(f"message '{name}' cannot be encoded: {error}".replace("\n", " ")) from error
        return self._checked(name.encode() + b" " + body)

    def decode(self, text: bytes) -> M:
        first, _, body = self._checked(text).partition(b" ")
        name = first.decode(errors="replace")
        adapter = self._adapters.get(name)
        if adapter is None:
            raise MessageError(f"unknown message {quoted(name)!r}; {nearest(name, self._adapters)}")
        try:
            return adapter.validate_json(body)
        except ValidationError as error:
            raise MessageError(f"message '{name}': {describe(error)}") from error
        except BadInputError as error:
            raise MessageError(f"message '{name}': {error}") from error

    def _checked(self, text: bytes) -> bytes:
        if len(text) > self._max_bytes:
            raise MessageError(f"a message of {len(text):,} bytes; at most {self._max_bytes:,} are sent")
        return text


BUNDLE_HELLOS = Codec(MAX_GREETING, BundleHello)
LINK_HELLOS = Codec(MAX_GREETING, LinkHello)
ORDERS = Codec[Order](LARGEST_TEXT, GenerationOrder, EpochOrder, GoOrder, LimitOrder, WatchOrder, EndOrder)
REPORTS = Codec[Report](LARGEST_TEXT, BeatReport, LinkedReport, BrokenReport, FirstReport, GaveUpReport, StagedReport)
