"""Observations of a run, batch by batch, and the report made of them."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cluster.topology import Slot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


# When a run has settled: Java compiles in its first ten or twenty seconds, and batches take two or three times as long
# meanwhile.
#
# Under a steady load that backlog is worked off later, so latencies until then are of the start and not of the load:
# the run has settled when that is done. A run that falls behind for good has settled at once: its backlog never falls.
# If all input is read at full speed, nothing waits, and batches are compared by their time per tuple.


LARGEST_PART = 0.5
"""Part of a run that is left out at most."""
SETTLED = 1.1
"""Times what a tuple takes in the second half of a run: up to this a batch is as fast as those."""
WORKING_OFF = 1.03
"""Times what is offered: a run that takes in more works off what has gathered."""
STILL_FASTER = 0.05
"""By so much batches vary from one half of a run to the other anyway."""
FEWEST_TO_SETTLE = 4
"""Number of batches below which all count."""


def settled_after(batches: Sequence[BatchObservation], least: float) -> float:
    """Seconds behind the first batch: `least`, or until no more waits than in the second half of the run and a batch of
    then."""
    if len(batches) < 2:
        return least
    first, last = batches[0].finished, batches[-1].finished
    later = [batch for batch in batches if batch.finished - first >= LARGEST_PART * (last - first)]
    level = median(batch.backlog for batch in later) + median(batch.tuples for batch in later)
    settled = next((batch.finished - first for batch in batches if batch.backlog <= level), 0.0)
    return max(least, min(settled, LARGEST_PART * (last - first)))


def first_settled(batches: Sequence[BatchObservation]) -> int:
    """The first batch that counts of those of an input that came to its end: behind the first, in which Spark gets
    ready, the first whose tuples took no longer than those of the second half do; at the latest where that begins.

    What a tuple of batch i takes is `(end_i - end_(i-1)) / tuples_i`.
    """
    if len(batches) < FEWEST_TO_SETTLE:
        return 0
    each = _each_took(batches)
    latest = max(1, int(LARGEST_PART * len(batches)))
    level = SETTLED * median(each[latest - 1 :])
    return next((at for at in range(1, latest) if each[at - 1] <= level), latest)


def became_faster(batches: Sequence[BatchObservation]) -> float | None:
    """By what part a tuple took less in the second half of the batches that count than in the first: Java still
    compiled. None: it did not."""
    each = _each_took(batches[first_settled(batches) :])
    half = len(each) // 2
    if half < FEWEST_TO_SETTLE:
        return None
    before, after = median(each[:half]), median(each[half:])
    return 1 - after / before if after < (1 - STILL_FASTER) * before else None


def _each_took(batches: Sequence[BatchObservation]) -> list[float]:
    """Seconds for a tuple of every batch but the first, from the end of the one before."""
    return [
        (later.finished - earlier.finished) / later.tuples if later.tuples else 0.0
        for earlier, later in pairwise(batches)
    ]


def notes_under_load(warm_up: float, settled: float, offered: float, sustained: float) -> list[str]:
    """Of a run under a steady load: what of it does not count beyond the warm-up, and whether it settled at all."""
    if sustained > WORKING_OFF * offered:
        return [
            "it took in more than came: what had gathered while Spark got ready, to which its latency belongs too; "
            "a longer run (--seconds) would settle"
        ]
    if settled > warm_up:
        return [f"its first {settled:.0f} s do not count: what gathered while Spark got ready was worked off then"]
    return []


def notes_of_all(tuples: int, seconds: float, batches: int, counted: int, faster: float | None = None) -> list[str]:
    """Of a run over all there was, in `seconds` since its start: how much of it rate and latency are of, and whether
    those that count `became_faster`."""
    notes = [f"the input ended: all {tuples:,} tuples were taken in within {seconds:.1f} s"]
    if counted < batches:
        first = "its first batch does" if batches - counted == 1 else f"its first {batches - counted} batches do"
        notes.append(f"{first} not count in rate and latency, {counted} do: Spark was getting ready")
    if faster is not None:
        notes.append(
            f"it was still getting faster when its input ended: a tuple took {faster:.0%} less in the second half of "
            "what counts than in the first, while Java compiled; what is predicted is for Java that has"
        )
    return notes


EMBEDDED_NODE = "local"
"""The node of embedded runs: this machine."""

STABLE_SLOPE = 0.03
"""Seconds of latency a second may add: up to this a run counts as stable. A pipeline asked for x % more than it does
falls behind by about x/100 seconds every second, so this is the overload that goes unnoticed."""


LEAST_TAKEN_IN = 0.8
"""Part of the offered rate below which a run fell behind."""
MAX_DEAD_LETTER_RATIO = 0.01
"""The part of all tuples that may become dead letters in a run that counts as stable."""
FEWEST_TO_FIT = 3
"""Batches a slope needs to mean something."""
FEWEST_PIECES = 5
"""Pieces of work a pace needs to mean something."""


@dataclass(frozen=True, slots=True)
class OperatorObservation:
    """Tuples an operator received, sent, filtered, and could not process, and the seconds it was at work."""

    received: int
    sent: int
    filtered: int
    dead: int
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class TaskObservation:
    """Measurements of an operator's tasks, for its task profile."""

    rows: int
    """Received."""
    handled: int
    """Received and sent."""
    sampled_rows: int
    """Those whose processing was timed."""
    sampled_seconds: float
    sampled_cpu_seconds: float
    crossed: int
    """Rows that came from, or went to, another process."""
    moving_cpu_seconds: float
    """CPU of its processes beside the operators' code and what an idle process uses: its part by rows that crossed."""
    held_mb: float
    """Memory that its processes gained, in MB: its part by rows handled."""

    def beside(self, other: TaskObservation) -> TaskObservation:
        """Add measurements of the same time in another process."""
        return TaskObservation(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def then(self, later: TaskObservation) -> TaskObservation:
        """Add measurements of a later time. Memory is not used up: the larger amount counts."""
        return replace(self.beside(later), held_mb=max(self.held_mb, later.held_mb))


@dataclass(frozen=True, slots=True)
class SlotObservation:
    """What one slot used for one batch: seconds of CPU and of wall clock, and its memory at the end of it. Beside it,
    how many pieces of fixed work were done to see how fast the core is, and the CPU they took."""

    slot: int
    cpu_seconds: float
    wall_seconds: float
    memory_mb: float
    pieces: int = 0
    piece_seconds: float = 0.0
    node: str = EMBEDDED_NODE
    operators: Mapping[str, OperatorObservation] = field(default_factory=dict)
    """What operators did there, where that is known."""

    @property
    def where(self) -> Slot:
        return Slot(self.node, self.slot)


@dataclass(frozen=True, slots=True)
class BatchObservation:
    """One batch that was committed."""

    finished: float
    """Seconds since the epoch."""
    tuples: int
    """Source tuples it took in."""
    backlog: int
    """Source tuples that were due but not yet taken in."""
    latencies: NDArray[np.float64]
    """Seconds from when the source tuple was due until its descendant reached a sink."""
    operators: Mapping[str, OperatorObservation]
    slots: Sequence[SlotObservation]
    latency_weight: float = 1.0
    """How many tuples each of the latencies stands for."""
    seconds: float = 0.0
    """From when it was begun, where that is known."""
    lag: Mapping[str, int] = field(default_factory=dict)
    """Of `backlog` what waits in topics, by topic/partition."""

    @property
    def began(self) -> float:
        return self.finished - self.seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """One batch as a point in time: seconds since the load began, tuples/s it took in since the batch before, tuples
    that waited, and median and 95th percentile of latency in seconds (None: nothing was delivered)."""

    seconds: float
    rate: float
    backlog: int
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class Audit:
    """Every source tuple that was taken in, looked for among what came out."""

    emitted: int
    lost: int | None
    """None: ids were not audited."""
    duplicated: int | None
    dead: int
    filtered: int

    @property
    def dead_share(self) -> float:
        return self.dead / self.emitted if self.emitted else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did past its warm-up. Rates in tuples/s of the source, latencies in seconds."""

    offered_rate: float
    sustained_rate: float
    latency_slope: float
    seconds: float
    latency_ms: Mapping[str, float]
    backlog: int
    operators: Mapping[str, OperatorObservation]
    slots: Mapping[Slot, tuple[float, float]]
    """cpu (1.0 = one core) and memory in MB, by slot."""
    audit: Audit
    batches: int = 0
    engine_cpu: float | None = 0.0
    """CPU (1.0 = one core) of the engine itself, beside what the slots' own code used; None: its process was not seen
    from here."""
    engine_memory_mb: float | None = None
    """Largest resident memory of the engine's own process seen, in MB; None: it was not seen from here."""
    others_cpu: float | None = None
    """The part of the machine that other processes, and its host, used meanwhile; None: not looked at."""
    pace: float | None = None
    """How fast the slots' cores were: pieces of a fixed work that one did in a second it was wanted; None: too few to
    say."""
    notes: tuple[str, ...] = ()
    history: tuple[Moment, ...] = ()
    """Every batch, those of the warm-up too."""
    first_errors: tuple[str, ...] = ()
    """Errors of dead letters."""
    max_dead_letter_ratio: float = MAX_DEAD_LETTER_RATIO
    lag: Mapping[str, int] = field(default_factory=dict)
    """Messages that wait in topics at its end, by topic/partition."""
    tasks: Mapping[str, TaskObservation] = field(default_factory=dict)
    """Measurements for task profiles, by operator."""
    processes: Mapping[str, float] = field(default_factory=dict)
    """Cores that each bundle of a placed run used; a process of Python works on one."""
    sampling_cores: float = 0.0
    """Cores that measuring task profiles took."""

    @property
    def stable(self) -> bool:
        """Latency does not rise. A short run has few batches to fit a slope to, so one that took in what was offered
        counts too: falling behind is the only way for latency to keep rising. One that took in much less does not,
        whatever a line through a few points says. Nor does one in which too many tuples died: it did not do its work.
        """
        if self.audit.dead_share > self.max_dead_letter_ratio:
            return False
        if self.sustained_rate >= (1 - STABLE_SLOPE) * self.offered_rate:
            return self.seconds > 0
        fell_behind = self.sustained_rate < LEAST_TAKEN_IN * self.offered_rate or self.batches < FEWEST_TO_FIT
        return self.seconds > 0 and self.latency_slope <= STABLE_SLOPE and not fell_behind

    @property
    def cpu_cores(self) -> float | None:
        """Cores used by all slots and the engine; None: the engine's process was not seen."""
        if self.engine_cpu is None or not self.slots:
            return None
        return self.engine_cpu + sum(cpu for cpu, _ in self.slots.values())

    @property
    def memory_mb(self) -> float | None:
        """Memory of all slots and the engine, in MB; None: the engine's process was not seen."""
        if self.engine_memory_mb is None or not self.slots:
            return None
        return self.engine_memory_mb + sum(memory for _, memory in self.slots.values())

    @property
    def verdict(self) -> str:
        if self.audit.dead_share > self.max_dead_letter_ratio:
            return "too many tuples died"
        return "stable" if self.stable else "falls behind"

    def document(self) -> dict[str, Any]:
        return {
            "offered_rate": self.offered_rate,
            "sustained_rate": self.sustained_rate,
            "stable": self.stable,
            "latency_slope": self.latency_slope,
            "seconds": self.seconds,
            "latency_ms": dict(self.latency_ms),
            "backlog": self.backlog,
            "lag": dict(self.lag),
            "operators": {
                name: {
                    "received": seen.received,
                    "sent": seen.sent,
                    "filtered": seen.filtered,
                    "dead": seen.dead,
                    "busy_seconds": seen.busy_seconds,
                }
                for name, seen in self.operators.items()
            },
            "slots": [
                {"node": slot.node, "slot": slot.number, "cpu": cpu, "memory_mb": memory}
                for slot, (cpu, memory) in self.slots.items()
            ],
            **self._measured(),
            "batches": self.batches,
            "engine_cpu": self.engine_cpu,
            "engine_memory_mb": self.engine_memory_mb,
            "others_cpu": self.others_cpu,
            "pace": self.pace,
            "emitted": self.audit.emitted,
            "lost": self.audit.lost,
            "duplicated": self.audit.duplicated,
            "dead": self.audit.dead,
            "filtered": self.audit.filtered,
            "first_errors": list(self.first_errors),
            "notes": list(self.notes),
        }

    def _measured(self) -> dict[str, Any]:
        """Return what only placed runs measure."""
        measured: dict[str, Any] = {"processes": dict(self.processes)} if self.processes else {}
        if self.tasks:
            measured["tasks"] = {name: asdict(task) for name, task in self.tasks.items()}
            measured["sampling_cores"] = self.sampling_cores
        return measured


def slope(times: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Least squares: `sum (t - mean t)(v - mean v) / sum (t - mean t)^2`; 0 for fewer than two points in time."""
    if len(times) < 2 or np.ptp(times) == 0:
        return 0.0
    centred = times - times.mean()
    return float((centred * (values - values.mean())).sum() / (centred**2).sum())


def weighted_quantile(values: NDArray[np.float64], weights: NDArray[np.float64], part: float) -> float:
    """The value below which `part` of the weight lies; where all weigh the same, the usual quantile."""
    if np.ptp(weights) == 0:
        return float(np.quantile(values, part))
    return float(np.quantile(values, part, weights=weights, method="inverted_cdf"))


def history(batches: Sequence[BatchObservation], began: float) -> tuple[Moment, ...]:
    """`began` is when the load did, in seconds since the epoch."""
    moments = []
    before = began
    for batch in batches:
        passed = batch.finished - before
        p50, p95 = np.quantile(batch.latencies, (0.5, 0.95)).tolist() if len(batch.latencies) else (None, None)
        rate = batch.tuples / passed if passed > 0 else 0.0
        moments.append(Moment(batch.finished - began, rate, batch.backlog, p50, p95))
        before = batch.finished
    return tuple(moments)


def arrived_rate(taken: int, waited_before: int, waits: int, seconds: float) -> float:
    """Tuples/s that came to a source nobody asks for a rate: `(taken in + growth of what waits) / seconds`. Below what
    was taken in where a backlog was worked off, above it where one grew."""
    return max(0.0, taken + waits - waited_before) / seconds if seconds > 0 else 0.0


def summarise(
    batches: Sequence[BatchObservation],
    offered_rate: float | None,
    warm_up: float,
    audit: Audit,
    engine_cpu: float | None = 0.0,
    began: float | None = None,
    *,
    whole: bool = False,
) -> Report:
    """The report of the batches that finished more than `warm_up` seconds after the first. `offered_rate`: tuples/s
    that were asked for; None: nobody asks, and what arrived was offered.

    The sustained rate is what those batches took in over the time from the end of the last batch before them (warm) to
    the end of the last of them: whole batches over whole periods, so that where a batch ends does not matter. With
    `began`, when the load did, the report has a history. `whole`: of an input that came to its end, everything is
    counted, whatever the warm-up; rates and latencies are those from when it had settled
    (`penstock.report.report.first_settled`).
    """
    moments = () if began is None else history(batches, began)
    first = batches[0].finished if batches else 0.0
    position = next((n for n, batch in enumerate(batches) if n and batch.finished - first >= warm_up), 1)
    if whole:
        position = first_settled(batches)
    warm = batches[position:]
    if not warm:
        short = ("too short: no batch after the warm-up",)
        asked = offered_rate or 0.0
        return Report(asked, 0.0, 0.0, 0.0, {}, 0, {}, {}, audit, 0, engine_cpu, notes=short, history=moments)
    begin = batches[position - 1].finished if position else began or first
    seconds = warm[-1].finished - begin
    taken = sum(batch.tuples for batch in warm)
    sustained = taken / seconds if seconds > 0 else 0.0
    # without due times, a tuple's latency leaves out its wait before: backlog / rate
    worked_off = sustained if offered_rate is None else 0.0
    waits = np.array([batch.backlog / worked_off if worked_off else 0.0 for batch in warm])
    if offered_rate is None:
        # an input that came to its end was all there, and all of it was taken in
        before = batches[position - 1].backlog if position else 0
        offered_rate = sustained if whole else arrived_rate(taken, before, warm[-1].backlog, seconds)
    latencies = np.concatenate([batch.latencies for batch in warm])
    weights = np.concatenate([np.full(len(batch.latencies), batch.latency_weight) for batch in warm])
    return Report(
        offered_rate=offered_rate,
        sustained_rate=sustained,
        latency_slope=_latency_slope(warm, waits),
        seconds=seconds,
        latency_ms={
            name: 1000 * weighted_quantile(latencies, weights, part)
            for name, part in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
            if len(latencies)
        },
        backlog=warm[-1].backlog,
        operators=_operators(batches if whole else warm),
        slots=_slots(warm, seconds),
        audit=audit,
        batches=len(warm),
        engine_cpu=engine_cpu,
        pace=pace_seen(warm),
        history=moments,
        lag=warm[-1].lag,
    )


def _latency_slope(batches: Sequence[BatchObservation], waits: NDArray[np.float64]) -> float:
    """Seconds a second adds to latency and to what tuples wait before it."""
    delivered = [n for n, batch in enumerate(batches) if len(batch.latencies)]
    times = np.array([batches[n].finished for n in delivered])
    return slope(times, np.array([batches[n].latencies.mean() + waits[n] for n in delivered]))


def _operators(batches: Sequence[BatchObservation]) -> dict[str, OperatorObservation]:
    names = dict.fromkeys(name for batch in batches for name in batch.operators)
    return {
        name: OperatorObservation(
            *(
                sum(getattr(batch.operators[name], what) for batch in batches if name in batch.operators)
                for what in ("received", "sent", "filtered", "dead", "busy_seconds")
            )
        )
        for name in names
    }


def pace_seen(batches: Sequence[BatchObservation]) -> float | None:
    pieces = sum(slot.pieces for batch in batches for slot in batch.slots)
    seconds = sum(slot.piece_seconds for batch in batches for slot in batch.slots)
    return pieces / seconds if pieces >= FEWEST_PIECES and seconds > 0 else None


def _slots(batches: Sequence[BatchObservation], seconds: float) -> dict[Slot, tuple[float, float]]:
    cpu: dict[Slot, float] = {}
    memory: dict[Slot, float] = {}
    for batch in batches:
        for seen in batch.slots:
            cpu[seen.where] = cpu.get(seen.where, 0.0) + seen.cpu_seconds
            memory[seen.where] = max(memory.get(seen.where, 0.0), seen.memory_mb)
    return {slot: (cpu[slot] / seconds if seconds else 0.0, memory[slot]) for slot in sorted(cpu)}
