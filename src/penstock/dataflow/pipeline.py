"""A pipeline: operators joined by streams.

Values only: calculations on a pipeline (rates, orders) have modules of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, StrictBool, model_validator

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import Amount, Count, Demand, ModelName, Name, Positive, Spec
from penstock.base.tolerance import exceeds
from penstock.dataflow.aggregate import Aggregate
from penstock.dataflow.formats import find_format, format_of_ending, formats_with_endings
from penstock.dataflow.logic import OnError, Per
from penstock.dataflow.secrets import check_no_secret, check_plain_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


# Placement constraints, declared for operators of a pipeline and for the pipeline itself.
#
# Labels and taints are plain words on nodes. The meaning of a constraint is defined here once; pipeline files, files of
# whole clusters and Python use the same words.


Pair = Annotated[tuple[Name, Name], Field(min_length=2, max_length=2)]


class OperatorConstraints(Spec):
    """Allowed places of an operator's threads, and resources they take besides their heap."""

    required_labels: tuple[Name, ...] = ()
    """A node must have all of them."""
    preferred_labels: tuple[Name, ...] = ()
    """Nodes with the most of these labels come first, among those with room."""
    forbidden_labels: tuple[Name, ...] = ()
    """A node must have none of them."""
    tolerates: tuple[Name, ...] = ()
    """Taints it does not mind, beside those its pipeline tolerates; a node with any other taint is not for it."""
    most_per_node: Count | None = None
    most_per_rack: Count | None = None
    off_heap_mb: Demand = 0.0
    """Memory of one thread outside the heap: it counts for the node, not for the limit of its slot."""

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        for kind, labels in (("required", self.required_labels), ("preferred", self.preferred_labels)):
            both = [label for label in labels if label in self.forbidden_labels]
            if both:
                raise ValueError(f"label '{both[0]}' is both {kind} and forbidden; keep one")
        return self


class SharedPer(StrEnum):
    """The scope that shares a piece of memory."""

    SLOT = "slot"
    NODE = "node"


class SharedMemory(Spec):
    """Memory that threads of these operators have in common: taken once per slot, or once per node, that has any."""

    operators: Annotated[tuple[Name, ...], Field(min_length=1)]
    mb: Positive
    per: SharedPer = SharedPer.SLOT
    heap: StrictBool = True
    """For `slot`: whether it is part of the heap, and so counts against the slot's limit."""

    @model_validator(mode="after")
    def _heaps_belong_to_slots(self) -> Self:
        if self.per is SharedPer.NODE and self.heap and "heap" in self.model_fields_set:
            raise ValueError("memory shared by a node is in no slot's heap; leave out heap, or share it per slot")
        return self


class PipelineConstraints(Spec):
    """Constraints of a pipeline as a whole, or between its operators."""

    tolerates: tuple[Name, ...] = ()
    """Taints none of its operators minds."""
    apart_on_nodes: tuple[Pair, ...] = ()
    """Operators of which no two threads share a node."""
    apart_on_slots: tuple[Pair, ...] = ()
    """Operators of which no two threads share a slot."""
    one_operator_per_slot: StrictBool = False
    isolated: StrictBool = False
    """Its nodes run no other pipeline."""
    shared_memory: tuple[SharedMemory, ...] = ()

    @model_validator(mode="after")
    def _pairs_are_of_two(self) -> Self:
        for key in ("apart_on_nodes", "apart_on_slots"):
            for a, b in getattr(self, key):
                if a == b:
                    what = "most_per_node: 1 for" if key == "apart_on_nodes" else "a smaller slot limit for"
                    raise ValueError(f"{key}: '{a}' is named twice in one pair; say {what} one operator")
        return self

    def renamed(self, names: Mapping[str, tuple[str, ...]]) -> PipelineConstraints:
        """Return the constraints with the operators that replaced those in `names`."""

        def now(*operators: str) -> tuple[str, ...]:
            return tuple(dict.fromkeys(new for old in operators for new in names.get(old, (old,))))

        def pairs(given: tuple[Pair, ...]) -> tuple[Pair, ...]:
            return tuple(dict.fromkeys((a, b) for left, right in given for a in now(left) for b in now(right)))

        return self.model_copy(
            update={
                "apart_on_nodes": pairs(self.apart_on_nodes),
                "apart_on_slots": pairs(self.apart_on_slots),
                "shared_memory": tuple(
                    shared.model_copy(update={"operators": now(*shared.operators)}) for shared in self.shared_memory
                ),
            }
        )

    def named(self) -> tuple[str, ...]:
        """Every operator it speaks of."""
        pairs = (name for pair in (*self.apart_on_nodes, *self.apart_on_slots) for name in pair)
        return (*pairs, *(name for shared in self.shared_memory for name in shared.operators))


ANYWHERE = OperatorConstraints()
UNCONSTRAINED = PipelineConstraints()


class Kind(StrEnum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


class Grouping(StrEnum):
    """The way a stream's tuples are distributed to the threads of its receiver."""

    SHUFFLE = "shuffle"
    """Every thread gets an equal share."""
    SLOT_AWARE = "slot-aware"
    """In proportion to the rate that each slot supports."""
    FIELDS = "fields"
    """By the hash of a key: equal keys meet in one thread."""
    PARTIAL_KEY = "partial-key"
    """By key, each key to the less loaded of two threads."""
    LOCAL_OR_SHUFFLE = "local-or-shuffle"
    """To threads on the sender's slot if there are any, else shuffle."""
    ALL = "all"
    """Every thread gets every tuple."""
    GLOBAL = "global"
    """One thread, the first, gets every tuple."""
    DIRECT = "direct"
    """The sender's code names the thread."""


MOST_OPERATORS, MOST_STREAMS = 2_000, 20_000
"""Max operators and streams of one pipeline: planning looks at pairs of operators in places."""

KEYED = frozenset({Grouping.FIELDS, Grouping.PARTIAL_KEY})


Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f]+$")]
"""The path of a file or folder, or a pattern of paths."""


class OutputMode(StrEnum):
    """The part of an aggregation that reaches a sink with each batch, named as in Spark."""

    APPEND = "append"
    """Rows that are final."""
    UPDATE = "update"
    """Rows that changed."""
    COMPLETE = "complete"
    """Everything there is so far."""


class Watermark(Spec):
    """Event time is `field`; a tuple more than `delay` (as in `10 seconds`) behind the latest may be left out."""

    field: Name
    delay: Name = "0 seconds"


class Operator(Spec):
    """One vertex: user logic run once per tuple.

    What a thread of it needs comes from a model, or is declared (`threads`, `cpu`, `memory_mb`, `resources`).
    """

    name: Name
    kind: Kind = Kind.OPERATOR
    model: ModelName | None = None
    threads: Count | None = None
    cpu: Demand | None = None
    memory_mb: Demand | None = None
    resources: dict[Name, Demand] = Field(default_factory=dict)
    constraints: OperatorConstraints = ANYWHERE
    """Constraints on the places of its threads."""
    run: Name | None = None
    """The code, as module:attribute; imported only when the pipeline is run."""
    per: Per | None = None
    """The argument of one call of the code, if `run` names a plain function; default: a row."""
    schema_: Annotated[str | None, Field(alias="schema", min_length=1, max_length=100_000)] = None
    """In Spark's words (`user string, amount double`): what a source reads, or what an operator's code sends."""
    timeout_seconds: Positive | None = None
    """A call of the code that takes longer is given up, and its tuple is a dead letter."""
    on_error: OnError | None = None
    chain: tuple[Operator, ...] = ()
    """The operators that were fused into this one, in order: its code is theirs, one after the other."""
    aggregate: Aggregate | None = None
    """Keyed aggregation instead of code."""
    format: Name | None = None
    """Spark's name for the format of a source or sink (`json`, `kafka`, `rate`, ...). A source without one emits
    numbers, at the rate of the run; a sink without one counts."""
    options: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Spark's own options of that format, for a source or sink."""
    watermark: Watermark | None = None
    """For a source: the field with the event time, and the max lateness of a row."""
    mode: OutputMode | None = None
    """For a sink: the rows of an aggregation that reach it."""
    frame: Name | None = None
    """For a source: a function from a session to a streaming DataFrame, as module:attribute."""
    write: Name | None = None
    """For a sink: a function that takes a batch (a DataFrame) and its number, as module:attribute."""
    files: Place | None = None
    """For a source, short for format and path: a pattern of files (`data/*.jsonl`); the ending gives the format."""
    parquet: Place | None = None
    """For a sink, short for format parquet and a path."""
    console: bool = False
    """For a sink: print a few of its rows every second."""
    logic: Annotated[Any, Field(exclude=True, repr=False)] = None
    """The code itself (`Logic`), if the pipeline was built in Python; a file cannot hold it."""
    frame_code: Annotated[Any, Field(exclude=True, repr=False)] = None
    """The function that `frame` names, if the pipeline was built in Python."""
    write_code: Annotated[Any, Field(exclude=True, repr=False)] = None
    """The function that `write` names, if the pipeline was built in Python."""
    code_at: Annotated[str | None, Field(exclude=True, repr=False)] = None
    """The place at which code that was given in Python is found again, as module:pipeline.operator."""

    @model_validator(mode="after")
    def _either_model_or_declared(self) -> Self:
        if self.model is not None and self.is_declared:
            raise ValueError(
                f"operator '{self.name}' names model '{self.model}' and also declares threads or demands; keep one"
            )
        if self.aggregate is not None and (self.run is not None or self.logic is not None):
            raise ValueError(f"operator '{self.name}' has an aggregate and code; keep one")
        if self.chain and (self.run is not None or self.logic is not None or self.aggregate is not None):
            raise ValueError(f"operator '{self.name}' has a chain and code of its own; keep one")
        if self.aggregate is not None and self.kind is not Kind.OPERATOR:
            raise ValueError(f"operator '{self.name}' is a {self.kind}; only operators aggregate")
        if self.is_declared and (self.threads is None or self.cpu is None or self.memory_mb is None):
            raise ValueError(f"operator '{self.name}' declares its demand: expected all of threads, cpu and memory_mb")
        return self

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Self:
        for key, kinds in _KINDS_OF_KEY.items():
            if getattr(self, key) not in (None, False, {}, ()) and self.kind not in kinds:
                shown = "schema" if key == "schema_" else key.removesuffix("_code")
                owner = " or ".join(kinds)
                raise ValueError(f"operator '{self.name}': '{shown}' belongs to a {owner}, and its kind is {self.kind}")
        return self

    @model_validator(mode="after")
    def _one_way_to_read_and_write(self) -> Self:
        ways = {
            "files": self.files,
            "frame": self.frame or self.frame_code,
            "code": self.run or self.logic,
            "write": self.write or self.write_code,
            "parquet": self.parquet,
            # with files, `format` is the format of the files
            "format": None if self.files else self.format,
        }
        given = [key for key, value in ways.items() if value is not None]
        allowed = {"code"} if self.kind is Kind.SINK else set()
        if self.kind is not Kind.OPERATOR and len(set(given) - allowed) > 1:
            raise ValueError(f"{self.kind} '{self.name}' has {' and '.join(given)}; keep one")
        if self.files and self.format is None and format_of_ending(PurePath(self.files).suffix) is None:
            raise ValueError(
                f"source '{self.name}': the ending of '{self.files}' does not say what the files hold; "
                f"give format: {', '.join(formats_with_endings())}"
            )
        if self.options and not (self.format or self.files or self.parquet):
            raise ValueError(f"{self.kind} '{self.name}': options mean something only with a format")
        form = find_format(self.format) if self.format else None
        if form is not None and not (form.can_write if self.kind is Kind.SINK else form.can_read):
            other = "read" if self.kind is Kind.SINK else "written"
            raise ValueError(f"{self.kind} '{self.name}': format '{self.format}' can only be {other}")
        return self

    @model_validator(mode="after")
    def _no_secret_in_plain(self) -> Self:
        try:
            if self.options:
                check_no_secret(self.options, self.format)
            for what, place in (("files", self.files), ("parquet", self.parquet)):
                if place is not None:
                    check_plain_place(what, place)
        except ValueError as error:
            raise ValueError(f"{self.kind} '{self.name}': {error}") from error
        return self

    @property
    def is_declared(self) -> bool:
        """Whether the resources of a thread are declared here, and not taken from a model. Threads alone only declare
        the number in which the code runs."""
        return self.cpu is not None or self.memory_mb is not None or bool(self.resources)


_KINDS_OF_KEY: Mapping[str, tuple[Kind, ...]] = {
    "files": (Kind.SOURCE,),
    "frame": (Kind.SOURCE,),
    "frame_code": (Kind.SOURCE,),
    "watermark": (Kind.SOURCE,),
    "format": (Kind.SOURCE, Kind.SINK),
    "options": (Kind.SOURCE, Kind.SINK),
    "schema_": (Kind.SOURCE, Kind.OPERATOR),
    "per": (Kind.SOURCE, Kind.OPERATOR, Kind.SINK),
    "parquet": (Kind.SINK,),
    "console": (Kind.SINK,),
    "mode": (Kind.SINK,),
    "chain": (Kind.OPERATOR,),
    "write": (Kind.SINK,),
    "write_code": (Kind.SINK,),
}


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
    constraints: PipelineConstraints = UNCONSTRAINED
    _inputs: Mapping[str, tuple[Stream, ...]] = field(init=False, repr=False, compare=False)
    _outputs: Mapping[str, tuple[Stream, ...]] = field(init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        name: str,
        operators: Iterable[Operator],
        streams: Iterable[Stream],
        constraints: PipelineConstraints = UNCONSTRAINED,
    ) -> Pipeline:
        table: dict[str, Operator] = {}
        for operator in operators:
            if operator.name in table:
                raise BadInputError(f"pipeline '{name}': operator '{operator.name}' is declared twice")
            table[operator.name] = operator
        return cls(name, MappingProxyType(table), tuple(streams), constraints)

    def _check_size(self) -> None:
        if not self.operators:
            raise BadInputError(f"pipeline '{self.name}': expected at least one operator")
        for what, count, most in (
            ("operators", len(self.operators), MOST_OPERATORS),
            ("streams", len(self.streams), MOST_STREAMS),
        ):
            if count > most:
                raise BadInputError(f"pipeline '{self.name}': expected at most {most:,} {what}, found {count:,}")

    def __post_init__(self) -> None:
        inputs: dict[str, list[Stream]] = {name: [] for name in self.operators}
        outputs: dict[str, list[Stream]] = {name: [] for name in self.operators}
        self._check_size()
        for named in self.constraints.named():
            if named not in self.operators:
                known = nearest(named, self.operators)
                raise BadInputError(f"pipeline '{self.name}': constraints: unknown operator '{named}'; {known}")
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
        object.__setattr__(self, "_inputs", {name: tuple(streams) for name, streams in inputs.items()})
        object.__setattr__(self, "_outputs", {name: tuple(streams) for name, streams in outputs.items()})

    def inputs(self, operator: str) -> tuple[Stream, ...]:
        return self._inputs[operator]

    def outputs(self, operator: str) -> tuple[Stream, ...]:
        return self._outputs[operator]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(name for name, operator in self.operators.items() if operator.kind is Kind.SOURCE)


# The rate at which rows arrive at every operator, from the rates of the sources.


@dataclass(frozen=True, slots=True)
class Gain:
    """The input rate of an operator as an affine function of the pipeline's rate: `factor * rate + constant`."""

    factor: float
    constant: float

    def at(self, rate: float) -> float:
        return self.factor * rate + self.constant

    def pipeline_rate_at(self, operator_rate: float) -> float:
        """The pipeline's rate at which the operator receives `operator_rate`; infinite if it does not depend on it.

        0 if the constant part alone exceeds it by more than a rounding error.
        """
        left = operator_rate - self.constant
        if exceeds(self.constant, operator_rate):
            return 0.0
        return max(0.0, left) / self.factor if self.factor > 0 else math.inf


def topological_order(pipeline: Pipeline) -> tuple[str, ...]:
    """Kahn's order with a first-in-first-out queue; ties in declared order. A cycle is an error that names it."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for name in pipeline.operators:
        sorter.add(name)
    for name in pipeline.operators:
        for stream in pipeline.outputs(name):
            sorter.add(stream.receiver, name)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " -> ".join(f"'{name}'" for name in error.args[1])
        raise BadInputError(
            f"pipeline '{pipeline.name}': rates need a pipeline without cycles, found {cycle}"
        ) from error
    order: list[str] = []
    while ready := sorter.get_ready():
        for name in ready:
            order.append(name)
            sorter.done(name)
    return tuple(order)


@dataclass(frozen=True, slots=True)
class Flows:
    """Rates of tuples: into every operator in topological order, and on every stream in declared order."""

    operators: Mapping[str, Gain]
    streams: tuple[Gain, ...]


def gains(pipeline: Pipeline) -> Mapping[str, Gain]:
    """Input rates as functions of the pipeline's rate W, in topological order (`flows`)."""
    return flows(pipeline).operators


def flows(pipeline: Pipeline) -> Flows:
    """Rates of operators and streams as functions of the pipeline's rate W.

    Sources receive `w = W`, others the sum of their streams: `w_j = sum over streams (i, j)`. A stream out of i carries
    `weight * (selectivity * w_i + constant)`; if it has `selectivities` a_k for the senders k of i's inputs, `weight *
    (sum over k of a_k * w_ki + constant)`. Every stream out of an operator carries its whole output (times its weight);
    streams into an operator interleave.
    """
    if not pipeline.sources:
        raise BadInputError(f"pipeline '{pipeline.name}': no source; expected at least one operator of kind source")
    table: dict[str, Gain] = {}
    carried: dict[int, Gain] = {}
    for name in topological_order(pipeline):
        inputs = pipeline.inputs(name)
        if name in pipeline.sources:
            table[name] = Gain(1.0, 0.0)
        elif not inputs:
            raise BadInputError(
                f"pipeline '{pipeline.name}': operator '{name}' receives no stream and is not of kind source"
            )
        else:
            table[name] = Gain(
                factor=sum(carried[id(stream)].factor for stream in inputs),
                constant=sum(carried[id(stream)].constant for stream in inputs),
            )
        if not math.isfinite(table[name].factor + table[name].constant):
            raise BadInputError(f"pipeline '{pipeline.name}': operator '{name}': its rate is too large to compute")
        for stream in pipeline.outputs(name):
            parts = [(stream.selectivity, table[name])]
            if stream.selectivities:
                parts = [(stream.selectivities.get(i.sender, stream.selectivity), carried[id(i)]) for i in inputs]
            carried[id(stream)] = Gain(
                factor=stream.weight * sum(selectivity * gain.factor for selectivity, gain in parts),
                constant=stream.weight
                * (sum(selectivity * gain.constant for selectivity, gain in parts) + stream.constant),
            )
    return Flows(table, tuple(carried[id(stream)] for stream in pipeline.streams))


def stream_rates(pipeline: Pipeline, rate: float) -> tuple[float, ...]:
    """Tuples/s on every stream, in declared order, at the pipeline's rate."""
    return tuple(gain.at(rate) for gain in flows(pipeline).streams)


def checked_rate(rate: float, what: str = "rate") -> float:
    if not isinstance(rate, int | float):
        raise BadInputError(f"{what}: expected a number of tuples/s, found {rate!r}")
    if not math.isfinite(rate) or rate <= 0:
        raise BadInputError(f"{what}: expected a finite number of tuples/s above 0, found {rate:g}")
    return float(rate)
