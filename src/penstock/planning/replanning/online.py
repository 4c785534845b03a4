"""Plan every pipeline of a live cluster in one pass: a snapshot in, a decision for every pipeline out.

1. The holdings of every pipeline are taken from the free table, in the order of the snapshot. Threads whose node
   left, or whose memory no longer fits, are lost.
2. A pipeline that lost nothing and asks for what its plan was made for keeps it.
3. The others are planned, those that shrink first, by their own allocator and placer. Running threads stay and
   only missing ones are placed (`penstock.planning.replanning.keeping`); if that is refused, or another placement
   would keep more of the rate, all of it is placed anew.
4. All or nothing: a pipeline that does not fit keeps its last good plan, or waits if it has lost a part of it.

Memory and other hard dimensions are kept for every placer. A pass is pure; it costs a vectorised step over the nodes
and one call of the placer for every pipeline that changed.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError, PenstockError, Refusal, Shortage
from penstock.base.tolerance import covers, exceeds
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, Node, Slot
from penstock.dataflow.pipeline import ANYWHERE, UNCONSTRAINED, checked_rate, gains
from penstock.planning.allocation.contract import Allocation, ElasticAllocator, OperatorAllocation, ThreadBundle
from penstock.planning.placement.constraints import broken
from penstock.planning.placement.contract import (
    Beside,
    Finishes,
    KeepsCurrent,
    OperatorRequest,
    PlacedBundle,
    Placement,
    PlacementRequest,
)
from penstock.planning.prediction.placement import SupportedRate, supported_rate
from penstock.planning.registry import ALLOCATORS, PLACERS
from penstock.planning.replanning.free_table import FreeTable, amount_of, copy_of
from penstock.planning.replanning.keeping import KeptPlan, Rows, keep, part_of_request, renumbered
from penstock.planning.replanning.plan_changes import ThreadMoves, by_operator, moves
from penstock.planning.replanning.snapshot import (
    ASKED,
    FUSED,
    NO_MOVES,
    SLOT,
    FleetSnapshot,
    OnlinePipeline,
    PassOutcome,
    PlanDecision,
    RunningPlan,
    at_least,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import Placer
    from penstock.planning.plan import Plan

ALIKE = 0.95
"""A placement that keeps this part of what another one would is not given up for it."""
SCARCE = 1e-9
OFFERS = (1, 2, 8, 1_000_000)
"""Times the slots needed that are offered to a placer, one after the other while it refuses."""
MAX_FOR_RATE = 2
"""Times the slots needed that are offered because a placement misses the rate."""
GIVE_UPS = 6
"""Times a refused placement is tried again with fewer slots of those that run."""
GIVE_UP_PART = 4
TOP_UPS = 16
TOP_UP = 1.01
STEP_UP = 1.15
MAX_TOP_UP = 4.0
"""Times the rate for which an operator is allocated at most so that it keeps the rate without a move."""
RATE_STEPS = 24
"""Bisections of the rate that a limit on slots allows."""


def plan_pass(snapshot: FleetSnapshot) -> list[PlanDecision]:
    """Decide about every pipeline of a snapshot, in its order."""
    table = FreeTable(
        snapshot.nodes, snapshot.dimensions, snapshot.held, snapshot.used, snapshot.closed, exclusive=snapshot.exclusive
    )
    held = {}
    for pipeline in snapshot.pipelines:
        with _planning(pipeline):
            held[pipeline.name] = _charge(pipeline, table)
    decisions: dict[str, PlanDecision] = {}
    changed: list[_Change] = []
    for pipeline in snapshot.pipelines:
        rows, lost = held[pipeline.name]
        current = pipeline.current
        if current is not None and current.whole and not lost and current.asked == pipeline.asked:
            stay = ThreadMoves(current.threads, 0, 0, 0)
            decisions[pipeline.name] = PlanDecision(
                pipeline.name, PassOutcome.KEPT, current, current, stay, 0, "nothing it depends on has changed"
            )
            continue
        with _planning(pipeline):
            changed.append(_Change(pipeline, table, rows, lost))
    # those that shrink come first: others may use the slots they leave
    for change in sorted(changed, key=lambda change: change.grows):
        with _planning(change.pipeline):
            decisions[change.pipeline.name] = change.decide()
    return [decisions[pipeline.name] for pipeline in snapshot.pipelines]


SIZED_BY = [ASKED.index(name) for name in ("pipeline", "engine", "slot_memory_mb", "min_executor_mb", "slot_cpu")]
"""Positions in `ASKED` of what the sizes of executors depend on, besides threads."""
SAID_AS = {
    "max_slots": "slots of its share",
    "max_nodes": "nodes of its share",
    "slot_memory_mb": "memory of a slot",
    "min_executor_mb": "memory of an executor",
    "slot_cpu": "CPU points of a slot",
}
"""Words for what a plan depends on, if the name is not plain enough."""


def _said(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class PassError(Exception):
    """An exception of a pass, with the pipeline it was about; the exception itself is its cause."""

    def __init__(self, pipeline: str, error: Exception) -> None:
        super().__init__(f"pipeline '{pipeline}': {type(error).__name__}: {error}")
        self.pipeline = pipeline
        self.error = error


@contextmanager
def _planning(pipeline: OnlinePipeline) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise PassError(pipeline.name, error) from error


def _charge(pipeline: OnlinePipeline, table: FreeTable) -> tuple[Rows, int]:
    """Take the holdings of a pipeline from the table; return those that are left and the number of threads lost."""
    current = pipeline.current
    rows: Rows = {}
    if current is None:
        return rows, 0
    lost = 0
    for slot, row in current.rows.items():
        amount = current.amount(slot)
        if (
            not table.has_slot(slot)
            or not table.may_use(slot.node, pipeline.name)
            or not table.fits(table.index[slot.node], amount)
        ):
            lost += sum(row.values())
            continue
        table.take_row(slot, amount, pipeline.name, alone=pipeline.is_isolated)
        rows[slot] = dict(row)
    return rows, lost


class _Change:
    """A pipeline that needs another plan."""

    def __init__(self, pipeline: OnlinePipeline, table: FreeTable, rows: Rows, lost: int) -> None:
        self.pipeline = pipeline
        self._table = table
        self._rows = rows
        self._lost = lost
        self._look_again()
        self._before = pipeline.current
        self._why = self._reason()
        self._failed: str | None = None
        self._less: tuple[str, ...] = ()
        try:
            self._placer: Placer = PLACERS.create(pipeline.placer)
            checked_rate(pipeline.rate)
            self._use(_allocation(pipeline, pipeline.rate))
        except PenstockError as error:
            self._failed = str(error)

    def _use(self, allocation: Allocation) -> None:
        self._allocation = allocation
        self._request = self._ask(allocation)
        self._floor = self._floor_of()
        self._demands = {operator.name: np.array(operator.demand) for operator in self._request.operators}

    def _look_again(self) -> None:
        """Have all stay that the share allows."""
        self._stay = _within(self._rows, self.pipeline.max_slots, self.pipeline.max_nodes)
        self._over = sum(sum(row.values()) for slot, row in self._rows.items() if slot not in self._stay)

    @property
    def grows(self) -> bool:
        """Return whether it needs more threads of any operator than it holds."""
        if self._failed is not None:
            return True
        have: Counter[str] = Counter()
        for row in self._rows.values():
            have.update(row)
        return any(operator.threads > have[operator.name] for operator in self._request.operators)

    def decide(self) -> PlanDecision:
        """Plan with what runs, anew if that is refused or keeps less of the rate, else keep or wait."""
        decision = self._best()
        if decision.outcome is PassOutcome.WAITS and self._before is not None:
            for slot in self._rows:
                self._table.release_row(slot, self._before.amount(slot))
        return decision

    def _best(self) -> PlanDecision:
        if self._failed is not None:
            return self._refused(self._failed, ())
        try:
            decision = self._decide()
            for slots in self._fewer(decision):
                try:
                    self._use(_allocation(self.pipeline, self.pipeline.rate, slots))
                except BadInputError:
                    break
                self._less = (f"all of its share: {decision.shortage}",)
                self._look_again()
                decision = self._decide()
                if decision.shortage is None:
                    break
            return decision
        except Exception as error:
            return self._refused(f"policies failed with {type(error).__name__}: {error}", ())

    def _fewer(self, decision: PlanDecision) -> Iterator[int]:
        """Yield counts of slots to plan for instead, if a plan for the whole share was refused.

        A fused pipeline runs on as many as there are. The placer of a placed one may need more slots than its
        allocation has.
        """
        pipeline = self.pipeline
        if decision.shortage is None:
            return
        if pipeline.engine == FUSED:
            asked = self._allocation.operators[0].threads
            usable = self._usable(
                self._request, [self._table.index[slot.node] for slot in self._rows], fills_slots=True
            )
            room = len(self._stay) + int(usable.sum())
            if pipeline.max_nodes is not None:
                most = np.sort(usable)[::-1][: pipeline.max_nodes]
                room = min(room, len(self._stay) + int(most.sum()))
            if 0 < room < asked:
                yield room
        elif pipeline.max_slots is not None:
            yield from range(pipeline.max_slots - 1, pipeline.max_slots // 2, -1)

    def _decide(self) -> PlanDecision:
        asked = self._allocation
        rejected: list[str] = list(self._less)
        steady = self._beside_what_runs(rejected)
        if steady is not None:
            steady = self._topped_up(steady)
            if covers(self._rate(steady), self.pipeline.rate):
                return self._sooner(asked, steady) or self._take(steady, tuple(rejected))
        enough = self._allocation
        self._use(asked)
        fresh = self._fresh()
        if isinstance(fresh, str):
            if steady is None:
                return self._refused(fresh, (*rejected, f"all anew: {fresh}") if self._rows else ())
            rejected.append(f"all anew: {fresh}")
        elif steady is None:
            return self._take(fresh, tuple(rejected))
        else:
            keeps, could = self._rate(steady), min(self._rate(fresh), self.pipeline.rate)
            if keeps < ALIKE * could:
                return self._take(fresh, (f"beside what runs: {keeps:g} instead of {could:g} tuples/s",))
            rejected.append(f"all anew: {could:g} instead of {keeps:g} tuples/s")
        self._use(enough)
        return self._take(steady, tuple(rejected))

    def _sooner(self, asked: Allocation, steady: Rows) -> PlanDecision | None:
        """Place all anew if its placer finishes earlier that way by more than its slack."""
        if not isinstance(self._placer, Finishes) or self.pipeline.engine == FUSED:
            return None
        later = self._placer.finish_seconds(self._beside(steady))
        enough = self._allocation
        self._use(asked)
        fresh = self._fresh()
        if not isinstance(fresh, str) and covers(self._rate(fresh), self.pipeline.rate):
            sooner = self._placer.finish_seconds(self._beside(fresh))
            if exceeds(later, (1 + self._placer.slack) * sooner):
                return self._take(
                    fresh, (f"beside what runs: a second's work is done in {later:.3g} s, not {sooner:.3g} s",)
                )
        self._use(enough)
        return None

    def _beside(self, rows: Rows) -> Beside:
        nodes = {slot.node: self._table.nodes[self._table.index[slot.node]] for slot in rows}
        return Beside(self._request, rows, nodes)

    def _beside_what_runs(self, rejected: list[str]) -> Rows | None:
        """Return the placement in which as much as possible stays; None if the placer refuses beside most of it too."""
        tries = GIVE_UPS if self._rows else 0
        while tries and self._stay:
            steady = self._steady(drop=True)
            if not isinstance(steady, str):
                return steady
            rejected.append(f"beside {len(self._stay)} of its {len(self._rows)} slots: {steady}")
            left = len(self._stay) - 1 - len(self._stay) // GIVE_UP_PART
            self._stay = _within(self._stay, left)
            tries -= 1
        self._stay = {}
        return None

    def _topped_up(self, rows: Rows) -> Rows:
        """Add threads of the bottleneck until the rate is kept, as long as there is room: nothing moves for it.

        Threads that run in bundles of other sizes than the allocator's do less than those would.
        """
        pipeline = self.pipeline
        if pipeline.engine == FUSED:
            return rows
        factors: dict[str, float] = {}
        fill = True
        for _ in range(TOP_UPS):
            supported = self._supported(rows)
            name = supported.bottleneck
            if name is None or covers(supported.rate, pipeline.rate) or supported.rate <= 0:
                break
            factors[name] = factors.get(name, 1.0) * TOP_UP * pipeline.rate / supported.rate
            if factors[name] > MAX_TOP_UP:
                break
            more = _allocation(pipeline, factors[name] * pipeline.rate).operator(name)
            before = self._allocation
            operators = tuple(more if operator.name == name else operator for operator in before.operators)
            self._use(Allocation(before.allocator, operators, before.notes))
            better = self._steady(fill=fill)
            if isinstance(better, str):
                self._use(before)
                break
            if exceeds(self._rate(better), supported.rate):
                rows = better
            else:
                # models are steps, so a little more may ask for no thread; and a full slot does no more with another
                self._use(before)
                fill = False
                factors[name] *= STEP_UP
        return rows

    def _reason(self) -> str:
        before = self._before
        if before is None:
            return "it has no plan yet"
        if self._lost:
            gone = sorted({slot.node for slot in before.rows if slot not in self._rows})
            return f"{self._lost} threads lost their place on {', '.join(gone[:3])}{' ...' if len(gone) > 3 else ''}"
        if not before.asked or before.asked == self.pipeline.asked:
            return "it did not get all it asked for"
        changes = {
            name: f"{SAID_AS.get(name, name)} {_said(old)} -> {_said(new)}"
            if name != "pipeline"
            else "another pipeline"
            for name, old, new in zip(ASKED, before.asked, self.pipeline.asked, strict=True)
            if old is not new and old != new
        }
        if "max_slots" in changes:
            # these follow from the share
            changes.pop("slots", None)
            changes.pop("max_nodes", None)
        return ", ".join(changes.values())

    def _ask(self, allocation: Allocation) -> PlacementRequest:
        table, pipeline = self._table, self.pipeline
        if pipeline.engine == FUSED:
            amounts = {CPU: pipeline.slot_cpu, MEMORY: pipeline.slot_memory_mb}
            demand = tuple(amounts.get(dimension.name, 0.0) for dimension in table.dimensions)
            slots = allocation.operators[0]
            operator = OperatorRequest(SLOT, slots.threads, demand, slots.bundles)
            return PlacementRequest(pipeline.name, (operator,), (), (0,))
        unit = Node("slot", "slot", 1, dict.fromkeys((dimension.name for dimension in table.dimensions), 0.0))
        return pipeline.planner.request(allocation, Cluster((unit,), table.dimensions))

    def _rate(self, rows: Rows) -> float:
        """Return the rate a placement keeps, at most the rate asked for if only fused slots are known."""
        if self.pipeline.engine == FUSED:
            return self.pipeline.rate
        return self._supported(rows).rate

    def _supported(self, rows: Rows) -> SupportedRate:
        pipeline = self.pipeline
        return supported_rate(gains(pipeline.planned), pipeline.planner.demands, rows, pipeline.routing)

    def _steady(self, *, fill: bool = True, drop: bool = False) -> Rows | str:
        """Return the placement in which everything that may stays, or why there is none; the table is as before.

        With `fill` missing threads start on slots it holds before the placer is asked for others. With `drop` slots
        whose threads need more than their node has now no longer count as staying.
        """
        while True:
            kept = keep(self._stay, self._allocation)
            # the demands of a thread may have changed with the rate: what stays is charged anew
            before = self._before
            held = {slot: before.amount(slot) for slot in self._rows} if before else {}
            for slot, amount in held.items():
                self._table.release_row(slot, amount)
            charged: dict[Slot, NDArray[np.float64]] = {}
            try:
                too_large = self._charge(kept, charged)
                if not too_large:
                    return self._place_missing(kept, fill=fill)
            finally:
                for slot, amount in charged.items():
                    self._table.release_row(slot, amount)
                self._take_back(held)
            if not drop:
                return f"its threads need more than {', '.join(dict.fromkeys(slot.node for slot in too_large))} has"
            self._over += sum(sum(self._rows[slot].values()) for slot in too_large)
            self._stay = {slot: row for slot, row in self._stay.items() if slot not in too_large}

    def _charge(self, kept: KeptPlan, charged: dict[Slot, NDArray[np.float64]]) -> list[Slot]:
        """Take the rows that stay from the table; return those that no longer fit on their node."""
        too_large = []
        for slot, row in kept.rows.items():
            amount = self._amount(slot, row)
            if not self._table.fits(self._table.index[slot.node], amount):
                too_large.append(slot)
            self._table.take_row(slot, amount, self.pipeline.name, alone=self.pipeline.is_isolated)
            charged[slot] = amount
        return too_large

    def _take_back(self, held: Mapping[Slot, NDArray[np.float64]]) -> None:
        for slot, amount in held.items():
            self._table.take_row(slot, amount, self.pipeline.name, alone=self.pipeline.is_isolated)

    def _amount(self, slot: Slot, row: Mapping[str, int]) -> NDArray[np.float64]:
        """Return what a slot takes of its node. One whose threads stay keeps its size: no executor restarts."""
        if self._keeps_size(slot, row) and self._before is not None:
            return self._before.amount(slot)
        return at_least(amount_of(row, self._demands), self._floor)

    def _keeps_size(self, slot: Slot, row: Mapping[str, int]) -> bool:
        before, asked = self._before, self.pipeline.asked
        if before is None or slot not in self._rows or before.rows[slot] != row or not before.asked:
            return False
        sized_by = [
            ASKED.index(name) for name in ("pipeline", "engine", "slot_memory_mb", "min_executor_mb", "slot_cpu")
        ]
        return all(before.asked[index] == asked[index] for index in sized_by)

    def _floor_of(self) -> tuple[float, ...]:
        """Return what the executor of a slot takes at least, by dimension."""
        memory = 0.0 if self.pipeline.engine == FUSED else self.pipeline.min_executor_mb
        return tuple(memory if dimension.name == MEMORY else 0.0 for dimension in self._table.dimensions)

    def _place_missing(self, kept: KeptPlan, *, fill: bool) -> Rows | str:
        """Start the missing threads beside those that stay, or where the placer puts them."""
        taken: list[tuple[Slot, NDArray[np.float64]]] = []

        def room(slot: Slot, name: str, threads: int) -> bool:
            row = kept.rows[slot]
            amount = self._amount(slot, {**row, name: row.get(name, 0) + threads}) - self._amount(slot, row)
            if not self._table.add(slot, amount):
                return False
            taken.append((slot, amount))
            return True

        if fill:
            kept.fill(room)
        rows = copy_of(kept.rows)
        try:
            if kept.missing:
                near = dict.fromkeys(self._table.index[slot.node] for slot in rows)
                beside = self._beside(copy_of(rows)) if rows else None
                placed = self._place(part_of_request(self._request, kept.missing, beside), list(near), rows)
                if isinstance(placed, str):
                    return placed
                rows |= placed
            return self._checked(rows)
        finally:
            for slot, amount in taken:
                self._table.free[self._table.index[slot.node]] += amount

    def _fresh(self) -> Rows | str:
        """Return the placement of all threads anew, or why there is none; the table is as before."""
        before = self._before
        held = {slot: before.amount(slot) for slot in self._rows} if before else {}
        for slot, amount in held.items():
            self._table.release_row(slot, amount)
        try:
            near = dict.fromkeys(self._table.index[slot.node] for slot in held)
            request = self._request
            if isinstance(self._placer, KeepsCurrent):
                request = replace(request, current=by_operator(self._rows))
            placed = self._place(request, list(near), {})
            return placed if isinstance(placed, str) else self._checked(renumbered(placed, self._rows))
        finally:
            self._take_back(held)

    def _place(self, request: PlacementRequest, near: list[int], beside: Rows) -> Rows | str:
        """Ask the placer with ever more nodes while it refuses or the rate is missed; return a refusal in words."""
        pipeline, table = self.pipeline, self._table
        limit = None if pipeline.max_slots is None else pipeline.max_slots - len(beside)
        if limit is not None and limit <= 0:
            return f"its share of {pipeline.max_slots} slots is full"
        fills_slots = not self._placer.whole_cluster or pipeline.engine == FUSED
        unit = self._unit(request, fills_slots=fills_slots)
        usable = self._usable(request, near, fills_slots=fills_slots)
        needed = self._slots_of(request)
        own = {table.index[slot.node] for slot in beside}
        refused, offered, best = "", -1, None
        for times in OFFERS:
            if best is not None and times > MAX_FOR_RATE:
                break
            wanted = needed * times if limit is None else min(needed * times, limit)
            offer = table.offer(usable, near, wanted, own, pipeline.max_nodes, self._floor)
            if offer is None or offer.size == offered:
                break
            offered = offer.size
            answer = offer.place(self._placer, request, own_slots=pipeline.engine == FUSED)
            if isinstance(answer, Refusal):
                refused = str(answer)
                continue
            rate = self._rate(beside | answer)
            if best is None or exceeds(rate, best[0]):
                best = rate, answer
            if covers(rate, pipeline.rate):
                break
        return self._short(unit, needed, refused) if best is None else best[1]

    def _usable(self, request: PlacementRequest, near: list[int], *, fills_slots: bool) -> NDArray[np.int64]:
        """Return how many slots of every node may be offered for a request."""
        table = self._table
        whole = table.hard.copy()
        if fills_slots:
            whole |= np.array([dimension.name == CPU for dimension in table.dimensions])
        usable = table.usable(self._unit(request, fills_slots=fills_slots), whole)
        table.close_to(self.pipeline.name, usable, near, alone=self.pipeline.is_isolated)
        return usable

    def _unit(self, request: PlacementRequest, *, fills_slots: bool) -> NDArray[np.float64]:
        """Return what every slot that is offered must have: a slot's worth, or the largest thread's demand."""
        largest = np.max([operator.demand for operator in request.operators], axis=0)
        if not fills_slots:
            return at_least(np.asarray(largest, dtype=float), self._floor)
        pipeline = self.pipeline
        amounts = {CPU: CPU_POINTS_PER_SLOT, MEMORY: pipeline.slot_memory_mb}
        if pipeline.engine == FUSED:
            amounts[CPU] = pipeline.slot_cpu
        elif pipeline.min_executor_mb:
            bundles = [bundle.memory for operator in request.operators for _, bundle in operator.bundles]
            amounts[MEMORY] = max(pipeline.min_executor_mb, max(bundles, default=0.0) * pipeline.slot_memory_mb)
        return np.array([amounts.get(dimension.name, 0.0) for dimension in self._table.dimensions])

    def _slots_of(self, request: PlacementRequest) -> int:
        if self.pipeline.engine == FUSED:
            return request.threads
        bundles = [(count, bundle) for operator in request.operators for count, bundle in operator.bundles]
        cpu = sum(count * bundle.cpu for count, bundle in bundles)
        memory = sum(count * bundle.memory for count, bundle in bundles)
        return max(1, int(np.ceil(max(cpu, memory) - SCARCE)))

    def _short(self, unit: NDArray[np.float64], needed: int, refused: str) -> str:
        closest = self._table.closest(unit)
        if closest is None:
            return "the cluster has no node"
        node, resource, wanted, offered = closest
        free = int(self._table.usable(unit, self._table.hard).sum())
        if free < needed or not refused:
            shortage = Shortage(self.pipeline.name, "slots", needed, free, "the whole cluster", "pipeline")
            if offered < wanted:
                return f"{shortage}; node {node} comes closest, with {offered:g} of {wanted:g} {resource}"
            names = (dimension.name for dimension in self._table.dimensions)
            takes = ", ".join(f"{amount:g} {name}" for name, amount in zip(names, unit, strict=True) if amount)
            return f"{shortage}; a slot takes {takes}"
        return refused

    def _checked(self, rows: Rows) -> Rows | str:
        """Return the rows if they keep the pipeline's constraints, else which one they break."""
        pipeline, request = self.pipeline, self._request
        bound = request.constraints != UNCONSTRAINED or any(o.constraints != ANYWHERE for o in request.operators)
        if not bound:
            return rows
        nodes = dict.fromkeys(slot.node for slot in rows)
        cluster = Cluster(tuple(self._table.nodes[self._table.index[name]] for name in nodes), self._table.dimensions)
        first = next(broken(cluster, self._request, placement_of(pipeline, rows)), None)
        return rows if first is None else first

    def _take(self, rows: Rows, rejected: tuple[str, ...]) -> PlanDecision:
        """Commit a placement to the table."""
        before = self._before
        for slot in self._rows:
            if before is not None:
                self._table.release_row(slot, before.amount(slot))
        for slot, row in rows.items():
            self._table.take_row(slot, self._amount(slot, row), self.pipeline.name, alone=self.pipeline.is_isolated)
        sizes = {slot: tuple(self._amount(slot, row)) for slot, row in rows.items() if self._keeps_size(slot, row)}
        demands = {operator.name: operator.demand for operator in self._request.operators}
        after = RunningPlan(
            rows, demands, self.pipeline.asked, self._rate(rows), self._floor, sizes, whole=not self._less
        )
        old = {} if before is None else before.rows
        changes = moves(old, self._rows, rows)
        same = before is not None and not self._lost and rows == {s: dict(r) for s, r in before.rows.items()}
        outcome = PassOutcome.KEPT if same else PassOutcome.PLANNED
        return PlanDecision(
            self.pipeline.name,
            outcome,
            before,
            after,
            changes,
            self._lost + self._over,
            self._why,
            rejected,
            None,
            self._allocation,
        )

    def _refused(self, shortage: str, rejected: tuple[str, ...]) -> PlanDecision:
        """Keep the last good plan if all of it still runs, else wait."""
        before, name = self._before, self.pipeline.name
        if before is not None and not self._lost:
            stay = ThreadMoves(before.threads, 0, 0, 0)
            return PlanDecision(name, PassOutcome.LAST_GOOD, before, before, stay, 0, self._why, rejected, shortage)
        return PlanDecision(name, PassOutcome.WAITS, before, None, NO_MOVES, self._lost, self._why, rejected, shortage)


def _allocation(pipeline: OnlinePipeline, rate: float, limit: int | None = None) -> Allocation:
    """Return the threads for a rate, or for the highest rate the pipeline's share of slots allows.

    `limit`: slots it may use, if less than its share."""
    allocator = ALLOCATORS.create(pipeline.allocator)
    limit = pipeline.max_slots if limit is None else limit
    if pipeline.engine == FUSED:
        slots = pipeline.slots
        if slots is None:
            slots = max(1, pipeline.planner.allocate(rate, allocator).slots_with_sources_and_sinks)
        slots = slots if limit is None else min(slots, limit)
        bundle = ThreadBundle(1, 1.0, 1.0, exclusive=True)
        operator = OperatorAllocation(SLOT, rate, ((slots, bundle),), "slots of a fused run")
        return Allocation(pipeline.allocator, (operator,))
    planner = pipeline.planner
    running = allocator
    if pipeline.current is not None and isinstance(allocator, ElasticAllocator):
        running = allocator.beside(pipeline.current.by_operator)
    allocation = planner.allocate(rate, running)
    if limit is None or allocation.slots_with_sources_and_sinks <= limit:
        return allocation
    low, high, kept = 0.0, rate, None
    for _ in range(RATE_STEPS):
        middle = (low + high) / 2
        tried = planner.allocate(middle, allocator)
        if tried.slots_with_sources_and_sinks <= limit:
            low, kept = middle, tried
        else:
            high = middle
    if kept is None:
        raise BadInputError(f"pipeline '{pipeline.name}' needs more than its share of {limit} slots at any rate")
    return kept


def _within(rows: Rows, max_slots: int | None, max_nodes: int | None = None) -> Rows:
    """Return the slots that may stay within a share: those with the most threads, in the order they have."""
    if max_nodes is not None:
        on: Counter[str] = Counter()
        for slot, row in rows.items():
            on[slot.node] += sum(row.values())
        stay = {node for node, _ in on.most_common(max_nodes)}
        rows = {slot: row for slot, row in rows.items() if slot.node in stay}
    if max_slots is None or len(rows) <= max_slots:
        return rows
    most = sorted(rows, key=lambda slot: -sum(rows[slot].values()))[:max_slots]
    return {slot: row for slot, row in rows.items() if slot in set(most)}


def placement_of(pipeline: OnlinePipeline, rows: Mapping[Slot, Mapping[str, int]]) -> Placement:
    """Return rows as a placement by the pipeline's placer."""
    bundles = (PlacedBundle(name, threads, slot) for slot, row in rows.items() for name, threads in row.items())
    return Placement(pipeline.name, pipeline.placer, tuple(bundles))


def full_plan(pipeline: OnlinePipeline, decision: PlanDecision, nodes: Mapping[str, Node]) -> Plan | None:
    """Return the whole plan of a placed pipeline that was planned, with its predictions; None for other decisions."""
    if decision.after is None or decision.allocation is None or pipeline.engine == FUSED:
        return None
    rows = decision.after.rows
    cluster = Cluster(tuple(nodes[name] for name in dict.fromkeys(slot.node for slot in rows)))
    placement = placement_of(pipeline, rows)
    return pipeline.planner.finish(pipeline.rate, decision.allocation, cluster, len(rows), placement)
