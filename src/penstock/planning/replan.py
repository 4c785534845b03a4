"""Re-planning what runs: threads stay where they are unless moving them pays.

Two plans are made and compared by `slots paid for + move_cost x threads moved`:

* kept: the current placement, changed as little as the new rate needs. Bundles that are too many stop, missing ones
  start beside what runs (or on added slots), and a thread moves only off a slot that would be above 1.
* fresh: what the policies plan from nothing, its slots exchanged among equals so that as many threads as possible are
  where they were.

Placers that weigh moves themselves (`KeepsCurrent`) are asked once, knowing what runs, and their answer stands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError, Refusal
from penstock.base.tolerance import TOLERANCE
from penstock.cluster.catalogue import Catalogue, rent
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, Node
from penstock.dataflow.rates import gains
from penstock.modelling.model import Model, Point
from penstock.planning.allocation.contract import Allocation, OperatorAllocation, ThreadBundle
from penstock.planning.allocation.joint_problem import Fixed, JointLayout, Problem, is_right, loads, supplied
from penstock.planning.allocation.joint_search import drop_surplus
from penstock.planning.placement.contract import KeepsCurrent, PlacedBundle, Placement
from penstock.planning.plan_changes import exchanged, running

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.cluster.topology import Slot
    from penstock.planning.allocation.contract import Allocator
    from penstock.planning.files import SavedPlan
    from penstock.planning.placement.contract import Placer
    from penstock.planning.plan import Plan
    from penstock.planning.planner import Planner

DEFAULT_MOVE_COST = 0.01
"""In slots for every thread that moves: a hundred threads moved are worth one slot saved."""

KEPT = "kept"
"""Stands for the policies where the current placement was kept."""


def replan(
    planner: Planner,
    rate: float,
    allocator: Allocator,
    placer: Placer,
    current: SavedPlan,
    move_cost: float | None = None,
    *,
    load: float = 1.0,
) -> Plan | Refusal:
    """The better of keeping what runs and planning anew; a refusal where neither is possible.

    `move_cost` is what a thread that moves counts, in slots (`DEFAULT_MOVE_COST`).
    """
    if current.pipeline != planner.pipeline.name:
        raise BadInputError(
            f"current plan: it is of pipeline '{current.pipeline}', and '{planner.pipeline.name}' is to be planned"
        )
    planner = replace(planner, current=current)
    if isinstance(placer, KeepsCurrent):
        if move_cost is not None:
            raise BadInputError(
                f"placer '{placer.name}' weighs moves by its own rule, so a move cost means nothing to it; leave it out"
            )
        return planner.plan(rate, allocator, placer, load=load)
    fresh = planner.plan(rate, allocator, placer, load=load)
    if not isinstance(fresh, Refusal):
        # CPU may be pooled on a node, and what is above 1 on a slot relies on its neighbours
        pooled = any(max(slot.cpu, slot.memory) > 1 + TOLERANCE for slot in fresh.prediction.slots.values())
        alike = not (planner.nodes_matter or pooled)
        placement = exchanged(fresh.placement, fresh.cluster, running(current, fresh.cluster), alike=alike)
        fresh = planner.finish(rate, fresh.allocation, fresh.cluster, fresh.slots_asked, placement, load)
    kept = _kept(planner, rate, current, load)
    plans = [plan for plan in (kept, fresh) if plan is not None and not isinstance(plan, Refusal)]
    rented = isinstance(planner.offer, Catalogue)
    price = DEFAULT_MOVE_COST if move_cost is None else move_cost
    return min(plans, key=lambda plan: _cost(plan, price, rented=rented), default=fresh)


def _cost(plan: Plan, move_cost: float, *, rented: bool) -> float:
    paid = len(plan.cluster.slots) if rented else plan.slots_used
    return paid + move_cost * (plan.moves.moved if plan.moves else 0)


def _held_cluster(planner: Planner, current: SavedPlan, more: int) -> Cluster | None:
    """The machines there are, and rented ones for so many more slots; None where the offer does not have them."""
    offer = planner.offer
    if not isinstance(offer, Catalogue):
        return offer if more == 0 else None
    sizes = {size.name: size for size in offer.sizes}
    nodes = []
    for node in current.nodes:
        size = sizes.get(node.size or "")
        if size is None or size.slots != node.slots:
            return None
        capacity = {CPU: CPU_POINTS_PER_SLOT * size.slots, MEMORY: size.memory_mb}
        nodes.append(Node(node.name, node.rack, node.slots, capacity, node.size, size.price))
    taken = {node.name for node in nodes}
    names = (name for name in (f"n{number}" for number in range(1, 10**9)) if name not in taken)
    added = rent(more, offer, planner.acquisition).nodes if more else ()
    return Cluster((*nodes, *(replace(node, name=next(names)) for node in added)))


def _kept(planner: Planner, rate: float, current: SavedPlan, load: float) -> Plan | None:
    """The current placement, changed as little as the rate needs, on as few further slots as that takes."""
    if planner.nodes_matter:
        return None
    more = 0
    while (cluster := _held_cluster(planner, current, more)) is not None and more <= 2 * len(current.nodes) + 16:
        state = _State(planner, rate / load, cluster, running(current, cluster))
        if state.adapt():
            return _plan(planner, rate, cluster, state, load)
        more += 1
    return None


def _plan(planner: Planner, rate: float, cluster: Cluster, state: _State, load: float) -> Plan:
    placement = state.placement(planner.pipeline.name)
    used = {bundle.slot.node for bundle in placement.bundles}
    if isinstance(planner.offer, Catalogue):
        cluster = Cluster(tuple(node for node in cluster.nodes if node.name in used), cluster.dimensions)
    return planner.finish(rate, state.allocation(), cluster, len(placement.by_slot()), placement, load)


class _State:
    """What runs, as a layout over all slots of a cluster. Thread counts that were never measured are points too."""

    def __init__(self, planner: Planner, rate: float, cluster: Cluster, before: dict[Slot, dict[str, int]]) -> None:
        self._slots = cluster.slots
        rates = gains(planner.pipeline)
        self._modelled: list[tuple[str, Model, float]] = []
        self._given: list[OperatorAllocation] = []
        for operator in planner.given(rate):
            if isinstance(operator, OperatorAllocation):
                self._given.append(operator)
            else:
                counts = {row[operator.operator] for row in before.values() if row.get(operator.operator)}
                model = _with_counts(operator.model, counts)
                self._modelled.append((operator.operator, model, operator.rate))
        self._order = list(rates)
        self.problem = Problem(
            [model for _, model, _ in self._modelled],
            [operator_rate for _, _, operator_rate in self._modelled],
            [Fixed(o.threads, o.cpu / o.threads, o.memory / o.threads) for o in self._given],
        )
        rows = [before.get(slot, {}) for slot in self._slots]
        self.layout = JointLayout(
            np.array(
                [[_point(model, row.get(name, 0)) for name, model, _ in self._modelled] for row in rows], dtype=np.int64
            ).reshape(len(rows), len(self._modelled)),
            np.array([[row.get(o.name, 0) for o in self._given] for row in rows], dtype=np.int64).reshape(
                len(rows), len(self._given)
            ),
        )

    def adapt(self) -> bool:
        """Start what is missing, move off slots above 1, stop what is too much; False where there is no room."""
        self._stop_fixed()
        steps = 4 * (len(self._slots) + self.problem.operators) + sum(fixed.count for fixed in self.problem.fixed)
        for _ in range(steps):
            short = np.flatnonzero(loads(self.problem, self.layout.choice) > 1 + TOLERANCE)
            missing = np.flatnonzero(self.layout.held.sum(axis=0) < [fixed.count for fixed in self.problem.fixed])
            used = self._use()
            if len(short):
                done = self._start(int(short[0]), used)
            elif len(missing):
                done = self._start_fixed(int(missing[0]), used)
            elif (used > 1 + TOLERANCE).any():
                done = self._move_off(int((used - 1).max(axis=1).argmax()), used)
            else:
                drop_surplus(self.problem, self.layout)
                return is_right(self.problem, self.layout)
            if not done:
                return False
        return False

    def _use(self) -> NDArray[np.float64]:
        """As predicted, with bundles that are asked for more than they support at their peak."""
        load = np.minimum(loads(self.problem, self.layout.choice), 1.0)
        bundles = self.problem.need[np.arange(self.problem.operators), self.layout.choice] * load[None, :, None]
        total: NDArray[np.float64] = bundles.sum(axis=1) + self.layout.held @ self.problem.fixed_need
        return total

    def _stop_fixed(self) -> None:
        for f, fixed in enumerate(self.problem.fixed):
            surplus = int(self.layout.held[:, f].sum()) - fixed.count
            for k in np.flatnonzero(self.layout.held[:, f])[::-1].tolist():
                stop = min(max(surplus, 0), int(self.layout.held[k, f]))
                self.layout.held[k, f] -= stop
                surplus -= stop

    def _start(self, i: int, used: NDArray[np.float64]) -> bool:
        """Give an operator that is short a larger or a further bundle: where it gains most, on a used slot if any."""
        problem, choice = self.problem, self.layout.choice
        lack = problem.rates[i] - supplied(problem, choice)[i]
        points = list(problem.points(i))
        gain = np.minimum(problem.peak[i, points] - problem.peak[i, choice[:, i]][:, None], lack)
        after = used[:, None] + problem.need[i, points] - problem.need[i, choice[:, i]][:, None]
        fits: NDArray[np.bool_] = (after <= 1 + TOLERANCE).all(axis=2) & (gain > TOLERANCE * problem.rates[i])
        if not fits.any():
            # at its peak no bundle fits beside others; a slot that is free takes one that fits alone
            alone = problem.need[i, points].max(axis=1) <= 1 + TOLERANCE
            fits = ~self._busy()[:, None] & (gain > TOLERANCE * problem.rates[i]) & alone
        if not fits.any():
            return False
        size = problem.need[i, points].max(axis=1)
        score = np.where(fits, gain / problem.rates[i] * 1e3 + self._busy()[:, None] - 1e-3 * size, -np.inf)
        k, p = np.unravel_index(int(score.argmax()), score.shape)
        choice[int(k), i] = points[int(p)]
        return True

    def _start_fixed(self, f: int, used: NDArray[np.float64]) -> bool:
        fits = (used + self.problem.fixed_need[f] <= 1 + TOLERANCE).all(axis=1)
        if not fits.any():
            return False
        self.layout.held[int(np.where(fits, self._busy() - used.max(axis=1) / 2, -np.inf).argmax()), f] += 1
        return True

    def _move_off(self, k: int, used: NDArray[np.float64]) -> bool:
        """Move one bundle, or fixed thread, off a slot above 1 to one that takes it: the fewest threads that help
        enough, else whatever relieves most per thread."""
        problem, layout = self.problem, self.layout
        load = loads(problem, layout.choice)
        best: tuple[float, int, int, bool] | None = None
        over = np.maximum(used[k] - 1, 0.0)
        for i in np.flatnonzero(layout.choice[k]).tolist():
            need = problem.need[i, layout.choice[k, i]] * load[i]
            fits = (used + need <= 1 + TOLERANCE).all(axis=1) & (layout.choice[:, i] == 0)
            fits[k] = False
            threads = self._modelled[i][1].points[layout.choice[k, i] - 1].threads
            best = self._better(best, fits, need, over, threads, i, fixed=False)
        for f in np.flatnonzero(layout.held[k]).tolist():
            need = problem.fixed_need[f]
            fits = (used + need <= 1 + TOLERANCE).all(axis=1)
            fits[k] = False
            best = self._better(best, fits, need, over, 1, f, fixed=True)
        if best is None:
            return False
        _, position, target, fixed = best
        if fixed:
            layout.held[k, position] -= 1
            layout.held[target, position] += 1
        else:
            layout.choice[target, position] = layout.choice[k, position]
            layout.choice[k, position] = 0
        return True

    def _better(
        self,
        best: tuple[float, int, int, bool] | None,
        fits: NDArray[np.bool_],
        need: NDArray[np.float64],
        over: NDArray[np.float64],
        threads: int,
        position: int,
        *,
        fixed: bool,
    ) -> tuple[float, int, int, bool] | None:
        relief = float(np.minimum(need, over).sum() / over.sum())
        if not fits.any() or relief <= TOLERANCE:
            return best
        price = threads / relief
        if best is not None and price >= best[0]:
            return best
        return price, position, int(np.where(fits, 1.0 + self._busy(), 0.0).argmax()), fixed

    def _busy(self) -> NDArray[np.bool_]:
        busy: NDArray[np.bool_] = (self.layout.choice.sum(axis=1) > 0) | (self.layout.held.sum(axis=1) > 0)
        return busy

    def placement(self, pipeline: str) -> Placement:
        bundles = []
        for slot, row, held in zip(self._slots, self.layout.choice.tolist(), self.layout.held.tolist(), strict=True):
            for (name, model, _), p in zip(self._modelled, row, strict=True):
                if p:
                    bundles.append(PlacedBundle(name, model.points[p - 1].threads, slot, "runs here, or beside it"))
            for operator, threads in zip(self._given, held, strict=True):
                if threads:
                    bundles.append(PlacedBundle(operator.name, threads, slot, "runs here, or beside it"))
        return Placement(pipeline, KEPT, tuple(bundles))

    def allocation(self) -> Allocation:
        load = loads(self.problem, self.layout.choice)
        operators = {operator.name: operator for operator in self._given}
        for i, (name, model, rate) in enumerate(self._modelled):
            points, counts = np.unique(self.layout.choice[:, i][self.layout.choice[:, i] > 0], return_counts=True)
            bundles = tuple(
                (
                    int(count),
                    ThreadBundle(
                        model.points[p - 1].threads,
                        float(load[i]) * model.points[p - 1].cpu,
                        float(load[i]) * model.points[p - 1].memory,
                    ),
                )
                for p, count in zip(points.tolist(), counts.tolist(), strict=True)
            )
            operators[name] = OperatorAllocation(name, rate, bundles, "kept from what runs, with what was missing")
        return Allocation(KEPT, tuple(operators[name] for name in self._order))


def _with_counts(model: Model, counts: set[int]) -> Model:
    """The model with a point, read between the measured ones, for every thread count that runs."""
    known = {point.threads for point in model.points}
    points = [
        Point(threads=count, rate=model.rate(count), cpu=model.cpu(count), memory=model.memory(count))
        for count in counts - known
    ]
    return Model(model.name, tuple(sorted((*model.points, *points), key=lambda point: point.threads)))


def _point(model: Model, threads: int) -> int:
    """The position (from 1) of the point with so many threads; 0 for none."""
    return next((p for p, point in enumerate(model.points, start=1) if point.threads == threads), 0) if threads else 0
