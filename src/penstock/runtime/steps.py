"""The operators that a slot runs as one: what each reads, and which of them share threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.batch import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.dataflow.logic import Logic
    from penstock.runtime.batch import Marks

ENTRANCE = -1
"""The position of what enters a segment; one with several inputs has entrances -1, -2, ..."""


@dataclass(frozen=True, slots=True)
class Read:
    """One stream into a step."""

    position: int = ENTRANCE
    """Of the earlier step that sends, or an entrance."""
    stream: int = 0
    """Its number (from 1) where paths must tell it from another; 0: the only way between the two."""
    share: tuple[float, float] = (0.0, 1.0)
    """The part of its sender's output that takes it, on a circle from 0 to 1 on which every row has a place."""

    @property
    def takes_all(self) -> bool:
        return self.share[1] - self.share[0] >= 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One operator."""

    operator: str
    logic: Logic | None = None
    """None: a source or a sink; what arrives goes on as it is."""
    threads: int = 1
    reads: tuple[Read, ...] = (Read(),)
    schema: pa.Schema | None = None
    """What comes out; None: what comes in comes out."""
    leaves: bool = False
    """Its output leaves the segment."""
    delivers: bool = False
    """A sink: what it sends has come to its end; latency is taken and ids are audited here."""
    leaves_sight: bool = False
    """What it sends goes on without its ids, to operators of Spark's own: from there on Spark answers for it."""


def shares(weights: Sequence[float]) -> list[tuple[float, float]]:
    """The part of a sender's output each of its streams takes: a weight of 1 takes all; smaller ones lie end to end on
    the circle, so that streams whose weights add up to 1 divide the output among them, each row to one."""
    ranges = []
    reached = 0.0
    for weight in weights:
        if weight >= 1.0:
            ranges.append((0.0, 1.0))
        else:
            ranges.append((reached, reached + weight))
            reached = (reached + weight) % 1.0
    return ranges


def places_on_circle(
    marks: Marks, rows: int, first: int, salt: int, contents: Callable[[], NDArray[np.uint64]]
) -> NDArray[np.float64]:
    """Where rows lie, from 0 to 1: always the same for the same tuple and sender (`salt`), and spread as by chance, so
    that what one sender divides is divided evenly again by the next. Without ids their number counts, from `first`;
    of rows that cannot be traced a number made of their `contents` (`row_hashes`).

    The mix is the finaliser of splitmix64.
    """
    seeds = np.arange(first, first + rows, dtype=np.int64) if marks.ids is None else marks.ids
    if marks.ids is not None and (untraced := marks.ids == UNTRACED).any():
        seeds = np.where(untraced, contents().astype(np.int64), seeds)
    bits = seeds.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt * 0x632BE59B)
    if marks.path is not None:
        bits ^= marks.path.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    places: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return places


def on_share(places: NDArray[np.float64], share: tuple[float, float]) -> NDArray[np.bool_]:
    """Which places lie on a part of the circle; one that ends beyond 1 goes on at 0."""
    low, high = share
    within: NDArray[np.bool_] = (places >= low) & (places < high)
    return within | (places < high - 1.0) if high > 1.0 else within


@dataclass(frozen=True, slots=True)
class CrewPlan:
    """Steps that the same threads work on."""

    positions: tuple[int, ...]
    threads: int


def plan_crews(steps: Sequence[Step], *, alone: bool = False) -> list[CrewPlan]:
    """Which steps share threads. Neighbours with one thread each stay in one, so that what passes between them is not
    handed over; an operator with several threads has its own, so that its waiting is another's working time. Steps
    without code need no thread. `alone`: everything in one."""
    crews: list[tuple[list[int], int]] = []
    crew_of: dict[int, set[int]] = {}
    head = ENTRANCE
    """The crew with one thread that takes what enters, as soon as there is one."""
    for position, step in enumerate(steps):
        senders = set[int]().union(*({ENTRANCE} if r.position < 0 else crew_of[r.position] for r in step.reads))
        if step.logic is None:
            crew_of[position] = senders
            continue
        threads = 1 if alone else step.threads
        crew = min({head if sender == ENTRANCE else sender for sender in senders})
        joins = threads == 1 and crew != ENTRANCE and crews[crew][1] == 1 and senders <= {crew, ENTRANCE}
        if joins and (ENTRANCE not in senders or crew == head):
            crews[crew][0].append(position)
        else:
            crews.append(([position], threads))
            crew = len(crews) - 1
            if threads == 1 and senders == {ENTRANCE}:
                head = crew
        crew_of[position] = {crew}
    return [CrewPlan(tuple(positions), threads) for positions, threads in crews]


def crews_entered(steps: Sequence[Step], crew_of: Mapping[int, int]) -> dict[int, set[int]]:
    """By entrance, the crews that what enters there goes to, at once or by way of steps without code."""
    entered: dict[int, set[int]] = {}
    entrances_of: dict[int, set[int]] = {}
    for position, step in enumerate(steps):
        entrances = set[int]().union(
            *({read.position} if read.position < 0 else entrances_of[read.position] for read in step.reads)
        )
        entrances_of[position] = entrances if step.logic is None else set()
        for entrance in entrances:
            entered.setdefault(entrance, set())
            if step.logic is not None:
                entered[entrance].add(crew_of[position])
    return entered
