"""Rewrites of a pipeline's graph that leave its rates as they are (E-Stream, section 1.1).

Separation turns one operator into several beside each other, fusion two into one, replication changes how many threads
an operator declares. Each returns a new pipeline and a description of the change; one that would change the results of
the pipeline is rejected.
"""

from __future__ import annotations

from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import BadInputError, nearest
from penstock.base.tolerance import exceeds, whole_up
from penstock.dataflow.code import has_code, per_of
from penstock.dataflow.logic import Logic, Per, why_not_as_one
from penstock.dataflow.pipeline import Grouping, Kind, Operator, Pipeline, Stream, flows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.dataflow.pipeline import OperatorConstraints


MOST_PARTS = 1000
"""Max parts of a separated operator: every part is an operator of its own, with every stream of the whole."""

_ANY_THREAD = frozenset({Grouping.SHUFFLE, Grouping.SLOT_AWARE, Grouping.LOCAL_OR_SHUFFLE})
"""Groupings that do not care which thread gets a tuple."""


class What(StrEnum):
    SEPARATED = "separated"
    FUSED = "fused"
    REPLICATED = "replicated"
    LEFT = "left as it is"


class RewriteStep(NamedTuple):
    """One thing that was done to a pipeline, or was to be done and why it was not."""

    what: What
    operators: tuple[str, ...]
    into: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        into = f" into {', '.join(self.into)}" if self.into and self.into != self.operators else ""
        return f"{', '.join(self.operators)} {self.what}{into}: {self.why}"


class Rewritten(NamedTuple):
    pipeline: Pipeline
    done: tuple[RewriteStep, ...]


def separate(pipeline: Pipeline, operator: str, parts: int, why: str = "asked for") -> Rewritten:
    """`operator` as `parts` operators, each with an equal part of every input stream (its weight) and of the threads.

    What leaves them adds up to what left it: selectivities stay, constants are shared out.
    """
    old = _inner(pipeline, operator, "separated")
    if _what_a_call_gets(old)[0] is Per.DATAFRAME:
        raise BadInputError(
            f"operator '{operator}' cannot be separated: it is Spark's own, and may group, count or join what only one "
            "place sees together"
        )
    if not isinstance(parts, int) or not 2 <= parts <= MOST_PARTS:
        raise BadInputError(f"operator '{operator}': expected 2 to {MOST_PARTS} parts, found {parts:g}")
    for stream in pipeline.inputs(operator):
        if stream.grouping not in _ANY_THREAD:
            raise BadInputError(
                f"operator '{operator}' cannot be separated: stream {stream} is grouped by '{stream.grouping}', and "
                "tuples that belong together would part"
            )
    names = [f"{operator}.{part}" for part in range(1, parts + 1)]
    _free(pipeline, names)
    made = [_part(old, name, parts, number) for number, name in enumerate(names)]
    operators = [new for name, kept in pipeline.operators.items() for new in (made if name == operator else [kept])]
    streams: list[Stream] = []
    for stream in pipeline.streams:
        if stream.receiver == operator:
            part = stream.weight / parts
            streams += [stream.model_copy(update={"receiver": name, "weight": part}) for name in names]
        elif stream.sender == operator:
            part = stream.constant / parts
            streams += [stream.model_copy(update={"sender": name, "constant": part}) for name in names]
        else:
            given = dict(stream.selectivities)
            if operator in given:
                amount = given.pop(operator)
                given.update(dict.fromkeys(names, amount))
            streams.append(stream.model_copy(update={"selectivities": given}))
    new = Pipeline.of(pipeline.name, operators, streams, pipeline.constraints.renamed({operator: tuple(names)}))
    return Rewritten(new, (RewriteStep(What.SEPARATED, (operator,), tuple(names), why),))


def _part(operator: Operator, name: str, parts: int, number: int) -> Operator:
    if not operator.is_declared:
        return operator.model_copy(update={"name": name, "model": operator.model or operator.name})
    size, larger = divmod(operator.threads or 1, parts)
    if not size:
        raise BadInputError(
            f"operator '{operator.name}' cannot be separated into {parts}: it declares {operator.threads} threads"
        )
    return operator.model_copy(update={"name": name, "threads": size + (number < larger)})


def fuse(pipeline: Pipeline, sender: str, receiver: str, why: str = "asked for") -> Rewritten:
    """The two ends of a stream as one operator, which receives what either received from others.

    With a_k the selectivity of an output of the receiver for its input from k, b_m that of the fused stream for the
    sender's input from m, the output has `a_sender * weight * b_m` for m and stays at a_k for the others; the stream's
    constant passes through a_sender too.
    """
    first, second = _inner(pipeline, sender, "fused"), _inner(pipeline, receiver, "fused")
    between = [stream for stream in pipeline.outputs(sender) if stream.receiver == receiver]
    if not between or sender == receiver:
        raise BadInputError(f"operators '{sender}' and '{receiver}' cannot be fused: no stream joins them")
    _check_fusable(pipeline, first, second, between)
    name = f"{sender}+{receiver}"
    _free(pipeline, [name])
    is_chain = _is_chain(pipeline, sender, receiver)
    if not is_chain and (has_code(first) or has_code(second)):
        raise BadInputError(
            f"operators '{sender}' and '{receiver}' cannot be fused: they have code, which runs as one only where "
            "nothing else enters or leaves between them"
        )
    why_not = why_not_as_one({part.name: _what_a_call_gets(part) for part in (*_parts(first), *_parts(second))})
    if is_chain and why_not is not None:
        raise BadInputError(f"operators '{sender}' and '{receiver}' cannot be fused: they cannot run as one: {why_not}")
    fused = _fused_operator(first, second, name).model_copy(
        update={"chain": (*_parts(first), *_parts(second)) if is_chain else ()}
    )
    operators = [
        fused if kept.name == sender else kept for kept in pipeline.operators.values() if kept.name != receiver
    ]
    inner = {stream.sender for stream in pipeline.inputs(sender)}
    outer = {stream.sender for stream in pipeline.inputs(receiver)} - {sender}
    streams: list[Stream] = []
    for stream in pipeline.streams:
        if (stream.sender, stream.receiver) == (sender, receiver):
            continue
        if stream.sender == sender:
            table = {k: stream.selectivities.get(k, stream.selectivity) for k in inner} | dict.fromkeys(outer, 0.0)
            streams.append(_sent(stream, name, table, stream.constant))
        elif stream.sender == receiver:
            passed = stream.selectivities.get(sender, stream.selectivity)
            table = {k: stream.selectivities.get(k, stream.selectivity) for k in outer}
            for k in inner:
                table[k] = passed * sum(s.weight * s.selectivities.get(k, s.selectivity) for s in between)
            constant = stream.constant + passed * sum(s.weight * s.constant for s in between)
            streams.append(_sent(stream, name, table, constant))
        elif stream.receiver in (sender, receiver):
            streams.append(stream.model_copy(update={"receiver": name}))
        else:
            streams.append(_renamed(pipeline, stream, (sender, receiver), name))
    constraints = pipeline.constraints.renamed({sender: (name,), receiver: (name,)})
    new = Pipeline.of(pipeline.name, operators, streams, constraints)
    return Rewritten(new, (RewriteStep(What.FUSED, (sender, receiver), (name,), why),))


def _check_fusable(pipeline: Pipeline, first: Operator, second: Operator, between: Iterable[Stream]) -> None:
    who = f"operators '{first.name}' and '{second.name}' cannot be fused"
    for stream in between:
        if stream.grouping not in _ANY_THREAD:
            raise BadInputError(f"{who}: the stream between them is grouped by '{stream.grouping}'")
    if first.is_declared != second.is_declared:
        raise BadInputError(f"{who}: one declares its demand and the other has a model")
    if not first.is_declared and first.threads != second.threads:
        threads = " and ".join("as planned" if part.threads is None else f"{part.threads}" for part in (first, second))
        raise BadInputError(f"{who}: they say how many threads they run in, and not the same ({threads})")
    if _placed_by(first) != _placed_by(second):
        raise BadInputError(f"{who}: their constraints say of other nodes where each may be")
    if {first.name, second.name} in map(
        set, (*pipeline.constraints.apart_on_nodes, *pipeline.constraints.apart_on_slots)
    ):
        raise BadInputError(f"{who}: constraints keep them apart")
    detour = _path(pipeline, first.name, second.name)
    if detour:
        raise BadInputError(f"{who}: '{detour}' lies on another way from one to the other and would wait for itself")
    both = {s.sender for s in pipeline.inputs(first.name)} & {s.sender for s in pipeline.inputs(second.name)}
    if both:
        raise BadInputError(f"{who}: both read from '{min(both)}', and what each makes of it could not be told apart")


def _placed_by(operator: Operator) -> OperatorConstraints:
    """Return its constraints on places."""
    return operator.constraints.model_copy(update={"off_heap_mb": 0.0})


def _path(pipeline: Pipeline, sender: str, receiver: str) -> str | None:
    """An operator through which another path leads from `sender` to `receiver`."""
    seen: set[str] = set()
    waiting = [(s.receiver, s.receiver) for s in pipeline.outputs(sender) if s.receiver != receiver]
    while waiting:
        name, first = waiting.pop()
        if name == receiver:
            return first
        if name not in seen:
            seen.add(name)
            waiting += [(stream.receiver, first) for stream in pipeline.outputs(name)]
    return None


def _what_a_call_gets(operator: Operator) -> tuple[Per | None, float | None]:
    """And its time limit."""
    said_by = operator.logic if isinstance(operator.logic, Logic) else operator
    return per_of(operator), said_by.timeout_seconds


def _is_chain(pipeline: Pipeline, sender: str, receiver: str) -> bool:
    """Whether all that the sender makes, and nothing else, goes to the receiver: code can run as one."""
    outputs, inputs = list(pipeline.outputs(sender)), list(pipeline.inputs(receiver))
    return len(outputs) == len(inputs) == 1 and outputs[0].receiver == receiver and outputs[0].weight == 1


def _parts(operator: Operator) -> tuple[Operator, ...]:
    return operator.chain or (operator,)


def _fused_operator(first: Operator, second: Operator, name: str) -> Operator:
    off_heap = first.constraints.off_heap_mb, second.constraints.off_heap_mb
    if not first.is_declared:
        constraints = first.constraints.model_copy(update={"off_heap_mb": sum(off_heap)})
        return Operator(name=name, model=name, threads=first.threads, constraints=constraints)
    a, b = first.threads or 1, second.threads or 1
    threads = max(a, b)

    def each(of_first: float | None, of_second: float | None) -> float:
        return (a * (of_first or 0.0) + b * (of_second or 0.0)) / threads

    resources = dict.fromkeys([*first.resources, *second.resources])
    return Operator(
        name=name,
        threads=threads,
        cpu=each(first.cpu, second.cpu),
        memory_mb=each(first.memory_mb, second.memory_mb),
        resources={key: each(first.resources.get(key), second.resources.get(key)) for key in resources},
        constraints=first.constraints.model_copy(update={"off_heap_mb": each(*off_heap)}),
    )


def _sent(stream: Stream, sender: str, selectivities: dict[str, float], constant: float) -> Stream:
    """A stream out of a fused operator; one selectivity where all are equal."""
    amounts = set(selectivities.values())
    update: dict[str, object] = {"sender": sender, "constant": constant, "selectivities": selectivities}
    if len(amounts) == 1:
        update |= {"selectivity": amounts.pop(), "selectivities": {}}
    return stream.model_copy(update=update)


def _renamed(pipeline: Pipeline, stream: Stream, old: tuple[str, str], new: str) -> Stream:
    """Return a stream with the output of another operator, which may declare selectivities for inputs that now come
    from one sender."""
    if not stream.selectivities:
        return stream
    senders = {given.sender for given in pipeline.inputs(stream.sender)}
    factors = {stream.selectivities.get(name, stream.selectivity) for name in old if name in senders}
    if len(factors) > 1:
        raise BadInputError(
            f"operators '{old[0]}' and '{old[1]}' cannot be fused: stream {stream} treats what each sends differently"
        )
    table = {name: amount for name, amount in stream.selectivities.items() if name not in old}
    if factors:
        table[new] = factors.pop()
    return stream.model_copy(update={"selectivities": table})


def replicate(pipeline: Pipeline, operator: str, threads: int, why: str = "asked for") -> Rewritten:
    """Return the pipeline with `threads` threads of `operator`: more for a higher rate, fewer if a lower one needs
    fewer."""
    old = pipeline.operators.get(operator) or _unknown(pipeline, operator)
    if not old.is_declared:
        raise BadInputError(f"operator '{operator}' has a model: its threads follow from the rate")
    if not isinstance(threads, int) or threads < 1:
        raise BadInputError(f"operator '{operator}': expected at least 1 thread, found {threads}")
    new = old.model_copy(update={"threads": threads})
    operators = [new if kept.name == operator else kept for kept in pipeline.operators.values()]
    done = RewriteStep(What.REPLICATED, (operator,), (operator,), f"{old.threads} -> {threads} threads, {why}")
    return Rewritten(Pipeline.of(pipeline.name, operators, pipeline.streams, pipeline.constraints), (done,))


def _inner(pipeline: Pipeline, name: str, what: str) -> Operator:
    operator = pipeline.operators.get(name) or _unknown(pipeline, name)
    if operator.kind is not Kind.OPERATOR:
        raise BadInputError(f"'{name}' cannot be {what}: it is a {operator.kind}")
    if operator.aggregate is not None:
        raise BadInputError(f"'{name}' cannot be {what}: it aggregates, and one place must see all tuples of a key")
    if any(stream.receiver == name for stream in pipeline.outputs(name)):
        raise BadInputError(f"'{name}' cannot be {what}: it sends to itself")
    return operator


def _unknown(pipeline: Pipeline, name: str) -> Operator:
    raise BadInputError(f"pipeline '{pipeline.name}': unknown operator '{name}'; {nearest(name, pipeline.operators)}")


def _free(pipeline: Pipeline, names: Iterable[str]) -> None:
    for name in names:
        if name in pipeline.operators:
            raise BadInputError(f"pipeline '{pipeline.name}': there is an operator '{name}' already")


# Choice of operators to separate and streams to fuse: outliers.


def separate_heavy(pipeline: Pipeline, loads: Mapping[str, float], factor: float) -> Rewritten:
    """Separate every operator that needs more than a slot and more than `factor` times the median of the others.

    The number of parts brings each down to that limit, but is at most the slots the operator fills: parts of less than
    a slot would only share one. `min(ceil(load / (factor * median)), ceil(load))`, loads in slots.
    """
    done: list[RewriteStep] = []
    inner = [name for name, operator in pipeline.operators.items() if operator.kind is Kind.OPERATOR]
    for name in inner:
        others = median([loads[other] for other in inner if other != name] or [0.0])
        if others <= 0 or not exceeds(loads[name], factor * others) or not exceeds(loads[name], 1.0):
            continue
        parts = min(whole_up(loads[name] / (factor * others)), whole_up(loads[name]))
        why = f"its load of {loads[name]:.3g} is {loads[name] / others:.3g} times the median of the others"
        try:
            pipeline, step = separate(pipeline, name, parts, why)
        except BadInputError as error:
            step = (RewriteStep(What.LEFT, (name,), (), str(error)),)
        done += step
    return Rewritten(pipeline, tuple(done))


def fuse_busy(pipeline: Pipeline, rate: float, factor: float) -> Rewritten:
    """Fuse the ends of every stream with more than `factor` times the median traffic (bytes/s) of the others, the
    busiest first. What is fused once is not fused again."""
    traffic: dict[tuple[str, str], float] = {}
    for stream, gain in zip(pipeline.streams, flows(pipeline).streams, strict=True):
        pair = stream.sender, stream.receiver
        traffic[pair] = traffic.get(pair, 0.0) + gain.at(rate) * stream.bytes
    done: list[RewriteStep] = []
    fused: set[str] = set()
    for pair in sorted(traffic, key=lambda pair: -traffic[pair]):
        others = median([amount for other, amount in traffic.items() if other != pair] or [0.0])
        kinds = {pipeline.operators[name].kind for name in pair if name in pipeline.operators}
        if others <= 0 or not exceeds(traffic[pair], factor * others) or fused & set(pair) or kinds != {Kind.OPERATOR}:
            continue
        why = f"{traffic[pair]:.3g} bytes/s between them, {traffic[pair] / others:.3g} times the median of the others"
        try:
            pipeline, step = fuse(pipeline, *pair, why)
            fused |= set(pair)
        except BadInputError as error:
            step = (RewriteStep(What.LEFT, pair, (), str(error)),)
        done += step
    return Rewritten(pipeline, tuple(done))
