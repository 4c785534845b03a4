"""The priority thesis' two use cases, simulated: who gets which nodes when, and how long tuples and batches take.

Workers of one pipeline have nodes to themselves, so pipelines do not disturb each other; where two workers share a
node both are slower by `slowdown`. A worker is one station: its spout, parser and dispatcher are in the time of a tuple
(`overhead`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock import Cluster, Grouping, Load, Network, Node, Slot, Tenant, Tenants
from penstock.plugins import CPU, CPU_POINTS_PER_SLOT, MEMORY, SHARERS
from penstock.simulation.scenario import Scenario, SimulatedPipeline, SimulatedRoute, Station, Switch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.simulation.outcome import PipelineOutcome, SimulationOutcome
    from penstock_lab.contract import Case, Measures

NODE_CORES, NODE_MEMORY_MB = 2, 3750.0
"""A c4.large of Table 7."""
EVENTS, ARCHIVES = ("EventTP1", "EventTP2"), ("ArchivalTP1", "ArchivalTP2")
PARTITIONS = 8
"""Producers of each topic (Table 5); one batch of each at a time."""
BATCH_SECONDS = 1.0
"""In which a batch arrives: less than a worker takes for ten of its tuples."""
SPELL_SECONDS = 0.5
"""How finely completions are seen."""
TP1, TP2 = "TP1", "TP2"
PRODUCERS = {TP1: 16, TP2: 8}
TUPLES_PER_PRODUCER = 5000
TRIGGER_SECONDS = 3.0
HIGH = frozenset({*EVENTS, TP1})
"""Pipelines of the higher priority."""
WINDOW_SECONDS = 60.0
"""Nothing changes within a window: processors are not shared here."""
UNIFORM = Network(same_slot_ms=0.0, same_node_ms=0.0, same_rack_ms=0.0, other_rack_ms=0.0)
"""Moving takes milliseconds here, processing hundreds of them (section 4.1.3): it is left out."""

DYNAMIC = frozenset({"dynamic-priority", "fair-priority"})
"""Policies that are asked again when a trigger changes priorities."""
DEACTIVATES = frozenset({"dynamic-priority"})
"""The published priority manager stops who was triggered, whether its share changes or not."""


@dataclass(frozen=True, slots=True)
class Want:
    """What one pipeline asks for; workers as many as nodes desired."""

    name: str
    desired: int
    minimum: int
    level: int
    """Priority of a static policy."""
    triggered: bool
    """Whether a trigger lifts it from level 2 to level 1 under a dynamic one."""


USE_1 = (
    Want("EventTP1", 8, 4, 1, triggered=True),
    Want("EventTP2", 8, 4, 1, triggered=True),
    Want("ArchivalTP1", 4, 2, 2, triggered=False),
    Want("ArchivalTP2", 4, 2, 2, triggered=False),
)
USE_2 = (Want(TP1, 16, 8, 1, triggered=True), Want(TP2, 8, 4, 2, triggered=False))


def shares(policy: str, nodes: int, wants: Sequence[Want], *, on: bool) -> dict[str, int]:
    """Nodes of everyone, with the trigger on or off. A static policy knows its levels from the start."""
    dynamic = policy in DYNAMIC
    level = {want.name: (1 if on and want.triggered else 2) if dynamic else want.level for want in wants}
    tenants = Tenants.of(
        nodes,
        [Tenant(want.name, want.desired, want.minimum, level[want.name], workers=want.desired) for want in wants],
        slots=NODE_CORES,
    )
    return {name: int(got) for name, got in SHARERS.create(policy).share(tenants).nodes.items()}


def worker_nodes(workers: int, nodes: int) -> list[int]:
    """The node of every worker, dealt in turn; a node takes as many as it has cores."""
    return [worker % nodes for worker in range(min(workers, NODE_CORES * nodes))]


def stations(want: Want, nodes: int, seconds: float, slowdown: float) -> tuple[Station, ...]:
    """One source, and a worker per thread; those that share a node are slower."""
    places = worker_nodes(want.desired, nodes)
    taken: dict[int, int] = {}
    placed = [Station("spout", _slot(want, 0, 0), 1, 0.0)]
    for place in places:
        number = taken[place] = taken.get(place, -1) + 1
        factor = slowdown if places.count(place) > 1 else 1.0
        placed.append(Station("process", _slot(want, place, number), 1, factor * seconds, factor * seconds))
    return tuple(placed)


def _slot(want: Want, node: int, number: int) -> Slot:
    return Slot(f"{want.name}-{node + 1}", number)


def own_nodes(wants: Sequence[Want]) -> Cluster:
    """As many nodes as everyone desires: which they are in the cluster makes no difference."""
    capacity = {CPU: CPU_POINTS_PER_SLOT * NODE_CORES, MEMORY: NODE_MEMORY_MB}
    return Cluster(
        tuple(
            Node(f"{want.name}-{n + 1}", "rack1", NODE_CORES, capacity) for want in wants for n in range(want.desired)
        )
    )


def batch_seconds(tuples: float, seconds: float, want: Want, nodes: int, slowdown: float) -> float:
    """Until the slowest worker is done with its part of a batch of every producer."""
    slowest = slowdown if nodes < want.desired else 1.0
    return tuples * PARTITIONS / want.desired * seconds * slowest


def use_case_1(case: Case) -> Measures:
    """80 batches, of which EP in the middle have events. The trigger goes on when the first of them is processed and
    off when the first without is."""
    from penstock.simulation.engine import simulate_scenario  # noqa: PLC0415 - cases are listed without it

    policy, batches, gap, length = case["policy"], case["batches"], case["BG"], case["BL"]
    with_events = round(case["EP"] * batches)
    first = (batches - with_events) // 2
    seconds = {want.name: _tuple_seconds(case, want.name) for want in USE_1}
    off, on = (shares(policy, case["nodes"], USE_1, on=state) for state in (False, True))
    slowdown = case["slowdown"]
    event = USE_1[0]
    begin = first * gap + batch_seconds(length, seconds[event.name], event, max(1, off[event.name]), slowdown)
    end = (first + with_events) * gap + batch_seconds(
        length, seconds[event.name], event, max(1, on[event.name]), slowdown
    )
    like = {want.name: _first_like(want, off, on) for want in USE_1 if off[want.name] or on[want.name]}
    running = [want for want in USE_1 if like.get(want.name) == want.name]
    switches: list[Switch] = []
    if policy in DYNAMIC and with_events:
        for want in running:
            made = {
                state: stations(want, nodes, seconds[want.name], slowdown) if nodes else ()
                for state, nodes in (("off", off[want.name]), ("on", on[want.name]))
            }
            moved = off[want.name] != on[want.name] or (want.triggered and policy in DEACTIVATES)
            if not moved:
                continue
            if made["on"]:
                switches.append(Switch(begin, want.name, made["on"], pause_seconds=case["pause"]))
                switches.append(Switch(end, want.name, made["off"], pause_seconds=case["pause"]))
            else:
                switches.append(Switch(begin, want.name, made["off"], pause_seconds=end - begin + case["pause"]))
    total = batches * gap
    tail = 2 * with_events * batch_seconds(length, seconds[USE_1[2].name], USE_1[2], 2, slowdown) + case["pause"] + gap
    horizon = total + tail if policy in DYNAMIC else total
    load = Load(((BATCH_SECONDS, PARTITIONS * length / BATCH_SECONDS), (gap - BATCH_SECONDS, 0.0)) * batches)
    grouping = Grouping(case["routing"])
    pipelines = tuple(
        SimulatedPipeline(
            want.name,
            stations(want, off[want.name] or on[want.name], seconds[want.name], slowdown),
            (SimulatedRoute("spout", "process", grouping),),
            ("spout",),
            load,
        )
        for want in running
    )
    points = int(np.ceil(horizon / SPELL_SECONDS))
    outcome = simulate_scenario(
        Scenario(
            own_nodes(USE_1),
            pipelines,
            points * SPELL_SECONDS,
            network=UNIFORM,
            contention=False,
            window_seconds=WINDOW_SECONDS,
            switches=tuple(sorted(switches, key=lambda switch: switch.at)),
            points=points,
        )
    )
    took = {
        want.name: batch_latencies(
            outcome.pipelines[like[want.name]], PARTITIONS * length, gap, batches, PARTITIONS // want.desired
        )
        for want in USE_1
        if want.name in like
    }
    events = slice(first, first + with_events)
    return {
        "nodes_off": [off[want.name] for want in USE_1],
        "nodes_on": [on[want.name] for want in USE_1],
        "TE": _mean(np.max([took[name][events] for name in EVENTS], axis=0)) if _all(took, EVENTS) else None,
        "TT high": _per_tuple(took, EVENTS, length),
        "TT low": _per_tuple(took, ARCHIVES, length),
        "TE worst": float(max(took[name].max() for name in EVENTS)) if _all(took, EVENTS) else None,
        "O": _overhead(outcome, switches, EVENTS),
    }


def _first_like(want: Want, off: Mapping[str, int], on: Mapping[str, int]) -> str:
    """The first pipeline that asks for the same and gets the same: what is alike is simulated once."""
    return next(
        known.name
        for known in USE_1
        if replace(known, name=want.name) == want
        and (off[known.name], on[known.name]) == (off[want.name], on[want.name])
    )


def _tuple_seconds(case: Case, name: str) -> float:
    """Shigh or half of it, and what a tuple costs besides; archiving has no such overhead."""
    service = case["Shigh"] if name in HIGH else case["Shigh"] / 2
    return float(service if name in ARCHIVES else service + case["overhead"])


def batch_latencies(
    outcome: PipelineOutcome, tuples: int, gap: float, batches: int, parts: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds from when a batch came until it was done, for every batch; the mean over its `parts`, which a worker does
    one after the other. Work is done in the order it came, so batch b is done with tuple `(b + 1) * tuples`. What is
    never done is done at the end, at the earliest."""
    done = np.cumsum(outcome.timeline.completed)
    wanted = np.arange(1, batches * parts + 1) * tuples / parts - 0.5
    spell = np.minimum(np.searchsorted(done, wanted), len(done) - 1)
    when = outcome.timeline.seconds[spell] - SPELL_SECONDS / 2
    came = np.repeat(np.arange(batches), parts) * gap
    latencies: np.ndarray[tuple[int], np.dtype[np.float64]] = (when - came).reshape(batches, parts).mean(axis=1)
    return latencies


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float | None:
    return float(values.mean()) if len(values) else None


def _all(took: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]], names: Sequence[str]) -> bool:
    return all(name in took for name in names)


def _per_tuple(
    took: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]], names: Sequence[str], length: int
) -> float | None:
    """TT: batch latency over the tuples of a batch, the mean over batches and pipelines; None where one has no node."""
    return float(np.mean([took[name].mean() for name in names]) / length) if _all(took, names) else None


def _overhead(outcome: SimulationOutcome, switches: Sequence[Switch], names: Sequence[str]) -> float:
    """O: from a trigger until sources go on, the mean over switches of these pipelines; 0 where there was none."""
    times = [
        back - switch.at
        for name in names
        if name in outcome.pipelines
        for switch, (_, back) in zip(
            [each for each in switches if each.pipeline == name], outcome.pipelines[name].drained, strict=True
        )
    ]
    return float(np.mean(times)) if times else 0.0


def use_case_2(case: Case) -> Measures:
    """Feed1 first at half its high rate, then at the high rate; three seconds later the trigger goes on."""
    from penstock.simulation.engine import simulate_scenario  # noqa: PLC0415 - cases are listed without it

    policy, rate, part = case["policy"], case["rate"], case["r1"]
    tuples = PRODUCERS[TP1] * TUPLES_PER_PRODUCER
    low_seconds = (1 - part) * tuples / (rate / 2)
    spells = {
        TP1: ((low_seconds, rate / 2), (part * tuples / rate, rate)),
        TP2: ((PRODUCERS[TP2] * TUPLES_PER_PRODUCER / case["rate2"], case["rate2"]),),
    }
    seconds = {want.name: _tuple_seconds(case, want.name) for want in USE_2}
    off, on = (shares(policy, case["nodes"], USE_2, on=state) for state in (False, True))
    feeds = {
        want.name: Feed(want, seconds[want.name], case["slowdown"], spells[want.name], case["pending"], case["routing"])
        for want in USE_2
    }
    at = low_seconds + TRIGGER_SECONDS
    switches = tuple(
        Switch(at, want.name, feeds[want.name].stations(on[want.name]), pause_seconds=case["pause"])
        for want in USE_2
        if policy in DYNAMIC and (off[want.name] != on[want.name] or (want.triggered and policy in DEACTIVATES))
    )
    work = TUPLES_PER_PRODUCER * seconds[TP1] * case["slowdown"]
    horizon = max(work + low_seconds, spells[TP2][0][0]) + 2 * case["pause"] + 60
    outcome = simulate_scenario(
        Scenario(
            own_nodes(USE_2),
            tuple(feeds[want.name].pipeline(off[want.name]) for want in USE_2),
            horizon,
            network=UNIFORM,
            contention=False,
            window_seconds=WINDOW_SECONDS,
            switches=switches,
        )
    )
    pipelines = outcome.pipelines
    return {
        "nodes_off": [off[want.name] for want in USE_2],
        "nodes_on": [on[want.name] for want in USE_2],
        "TT high": pipelines[TP1].latency.mean,
        "TT low": pipelines[TP2].latency.mean,
        "O": _overhead(outcome, switches, (TP1,)),
        "left": pipelines[TP1].queued + pipelines[TP2].queued + pipelines[TP1].waiting + pipelines[TP2].waiting,
    }


@dataclass(frozen=True, slots=True)
class Feed:
    """A pipeline of use case 2. With `shuffle` every worker has a partition of its own; with `slot-aware` all read all,
    and get tuples in proportion to what they do. Each has at most `pending` tuples on their way."""

    want: Want
    seconds: float
    slowdown: float
    spells: tuple[tuple[float, float], ...]
    pending: int
    routing: str

    @property
    def by_partition(self) -> bool:
        return self.routing == Grouping.SHUFFLE

    def stations(self, nodes: int) -> tuple[Station, ...]:
        made = stations(self.want, nodes, self.seconds, self.slowdown)
        if not self.by_partition:
            return made
        placed: list[Station] = []
        for number, worker in enumerate(made[1:], 1):
            placed += [Station(f"spout{number}", worker.slot, 1, 0.0), replace(worker, operator=f"process{number}")]
        return tuple(placed)

    def pipeline(self, nodes: int) -> SimulatedPipeline:
        workers = self.want.desired
        numbers = [str(number) for number in range(1, workers + 1)] if self.by_partition else [""]
        return SimulatedPipeline(
            self.want.name,
            self.stations(nodes),
            tuple(SimulatedRoute(f"spout{number}", f"process{number}", Grouping(self.routing)) for number in numbers),
            tuple(f"spout{number}" for number in numbers),
            Load((*((spell, rate / len(numbers)) for spell, rate in self.spells), (1.0, 0.0))),
            in_flight=self.pending * workers // len(numbers),
        )
