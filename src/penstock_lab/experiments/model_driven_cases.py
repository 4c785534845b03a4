"""The cases of model-driven scheduling's evaluation, and what one gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import penstock
from penstock import Catalogue, Cluster, Node
from penstock.dataflow.pipeline import gains
from penstock.modelling.library import demands_of
from penstock.planning.prediction.placement import node_usage, slot_usage
from penstock.plugins import CPU, CPU_POINTS_PER_SLOT, MEMORY, find_catalogue, reference_library
from penstock.simulation.engine import simulate_scenario
from penstock.simulation.from_plan import Options, from_plan
from penstock.simulation.scenario import Scenario
from penstock.types import Routing

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock import ModelLibrary, Plan
    from penstock.simulation.outcome import PipelineOutcome, SimulationOutcome
    from penstock_lab.contract import Case, Measures


# Plans put to the test in simulated time: is this rate stable, and which is the highest stable one?


PUBLISHED_SLOPE = 0.001
"""Seconds per second: a trial whose latency rises no faster is stable (model-driven scheduling, Algorithm 1)."""
WARM_UP_SHARE = 0.2


@dataclass(frozen=True)
class SimulatedTrial:
    """A plan and how it is tried. On Storm a slot is a process that may use all cores of its node."""

    plan: Plan
    seconds: float
    routing: Routing = Routing.SHUFFLE
    seed: int = 0
    library: ModelLibrary | None = None

    def at(self, rate: float) -> SimulationOutcome:
        demands = demands_of(self.plan.pipeline, self.library or reference_library())
        return simulate_scenario(
            Scenario(
                cluster=self.plan.cluster,
                pipelines=(from_plan(self.plan, demands, rate, Options(routing=self.routing)),),
                seconds=self.seconds,
                warm_up=WARM_UP_SHARE * self.seconds,
                seed=self.seed,
                slot_cores=None,
            )
        )

    def is_stable(self, rate: float) -> bool:
        return is_stable(self.at(rate).pipelines[self.plan.pipeline.name])


def is_stable(outcome: PipelineOutcome) -> bool:
    """It did what was offered, and latency does not rise faster than the document allows."""
    return outcome.stable and outcome.latency_slope <= PUBLISHED_SLOPE


def highest(stable: Callable[[int], bool], guess: int, most: int | None = None) -> int:
    """The largest whole number up to `most` that is stable, 0 where 1 is not; what is stable is so for all below.

    Strides double away from the guess until they have crossed the edge, then the gap is halved.
    """
    low, high = 0, math.inf if most is None else most + 1
    tried, stride = min(max(guess, 1), most or max(guess, 1)), 1
    while low + 1 < high:
        if stable(tried):
            low, following = tried, tried + stride
        else:
            high, following = tried, tried - stride
        stride *= 2
        tried = following if low < following < high else (low + int(min(high, 2 * low + 2))) // 2
    return low


MICRO = ("linear", "diamond", "star")
APPLICATIONS = ("app-finance", "app-traffic", "app-grid")
COMPARED = ("lsa+rsm", "mba+sam")
"""Figs 7 and 8."""
PAIRS = ("lsa+dsm", "lsa+rsm", "mba+dsm", "mba+rsm", "mba+sam")
"""Figs 9 to 13."""
MICRO_RATES = (50, 100, 200)
APPLICATION_RATES = (50, 100)
RATE_STEP = 5
"""Tuples/s by which the rate is lowered until a run is stable (Figs 7, 8)."""
PLAN_STEP = 10
"""Tuples/s by which rates are raised on a fixed cluster (Figs 9, 10)."""
NODES = 5
NODE_SLOTS = 4
SLOT_MEMORY_MB = 3584.0
SECONDS = 900
"""The document runs for 15 minutes."""
QUICK_SECONDS = 120
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

_OURS = {"dsm": "round-robin"}
"""Placers with another name here."""


def policies(pair: str) -> tuple[str, str]:
    """The allocator and the placer of a published pair."""
    allocator, _, placer = pair.partition("+")
    return allocator, _OURS.get(placer, placer)


def slot_cases(*, quick: bool) -> list[Case]:
    asked = [(name, rate) for name in MICRO for rate in MICRO_RATES]
    asked += [(name, rate) for name in APPLICATIONS for rate in APPLICATION_RATES]
    return [
        {"part": "slots", "pipeline": name, "rate": rate, "pair": pair, "seconds": _seconds(quick=quick)}
        for name, rate in asked
        for pair in COMPARED
    ]


def rate_cases(*, quick: bool) -> list[Case]:
    return [
        {"part": "rates", "pipeline": name, "pair": pair, "seconds": _seconds(quick=quick)}
        for name in MICRO
        for pair in PAIRS
    ]


def _seconds(*, quick: bool) -> int:
    return QUICK_SECONDS if quick else SECONDS


def run(case: Case) -> Measures:
    return run_slots(case) if case["part"] == "slots" else run_rates(case)


def run_slots(case: Case) -> Measures:
    """Figs 7 and 8: slots allocated, slots the placer added, and the highest stable rate up to the planned one."""
    allocator, placer = policies(case["pair"])
    plan = penstock.plan(case["pipeline"], case["rate"], catalogue=d3_catalogue(), allocator=allocator, placer=placer)
    asked = case["rate"] // RATE_STEP
    trial = SimulatedTrial(plan, case["seconds"])
    steps = highest(lambda multiple: trial.is_stable(multiple * RATE_STEP), asked, asked)
    aware = SimulatedTrial(plan, case["seconds"], Routing.SLOT_AWARE).is_stable(case["rate"])
    return {**plan_measures(plan), "actual": steps * RATE_STEP, "slot_aware_reaches_the_rate": aware}


def d3_catalogue() -> Catalogue:
    """Sizes up to D3, four slots: the largest the document rents."""
    whole = find_catalogue("azure-d")
    return Catalogue(whole.name, tuple(size for size in whole.sizes if size.slots <= NODE_SLOTS), whole.currency)


def plan_measures(plan: Plan) -> Measures:
    operators = {
        operator.name: {"threads": operator.threads, "cpu": operator.cpu, "memory": operator.memory}
        for operator in plan.allocation.operators
    }
    allocated = plan.allocation.slots
    return {
        "allocated": allocated,
        "placed": plan.slots_asked,
        "extra": plan.slots_asked - allocated,
        "growth": plan.growth,
        "bound": plan.fewest_slots,
        "operators": operators,
        "predicted_shuffle": plan.prediction.shuffle.rate,
        "predicted": plan.prediction.slot_aware.rate,
    }


def five_nodes() -> Cluster:
    """Five D3 machines: four slots each, one core and 3.5 GB a slot."""
    capacity = MappingProxyType({CPU: CPU_POINTS_PER_SLOT * NODE_SLOTS, MEMORY: SLOT_MEMORY_MB * NODE_SLOTS})
    return Cluster(tuple(Node(f"n{number}", "r1", NODE_SLOTS, capacity, "D3") for number in range(1, NODES + 1)))


def run_rates(case: Case) -> Measures:
    """Figs 9 to 13: the rate planned for five nodes, predicted for that plan, and reached; use and latency there.

    The document predicts with the sum of what an operator's slots do, which is our prediction for slot-aware routing;
    tuples are dealt by shuffle.
    """
    allocator, placer = policies(case["pair"])
    cluster = five_nodes()
    pipeline = case["pipeline"]
    (capacity,) = penstock.capacity(pipeline, cluster, step=PLAN_STEP, allocator=allocator, placer=placer).values()
    if not capacity.placed:
        return {"planned": None, "allocated_rate": capacity.allocated}
    plan = penstock.plan(pipeline, capacity.placed, cluster=cluster, allocator=allocator, placer=placer)
    predicted = plan.prediction.slot_aware.rate
    trial = SimulatedTrial(plan, case["seconds"])
    guess = round(plan.prediction.shuffle.rate / PLAN_STEP)
    actual = PLAN_STEP * highest(lambda multiple: trial.is_stable(multiple * PLAN_STEP), guess)
    return {
        **plan_measures(plan),
        "planned": capacity.placed,
        "allocated_rate": capacity.allocated,
        "actual": actual,
        "predicted_nodes": predicted_nodes(plan, predicted),
        **(_outcome_measures(plan, trial.at(actual)) if actual else {}),
    }


def predicted_nodes(plan: Plan, rate: float) -> dict[str, dict[str, float]]:
    """CPU and memory of every node at a rate, as shares of the node."""
    demands = demands_of(plan.pipeline, reference_library())
    slots = slot_usage(gains(plan.pipeline), demands, {}, plan.placement.by_slot(), rate, Routing.SLOT_AWARE)
    used = node_usage(slots)
    return {
        node.name: {
            "cpu": used[node.name].cpu / node.slots if node.name in used else 0.0,
            "memory": used[node.name].memory / node.slots if node.name in used else 0.0,
        }
        for node in plan.cluster.nodes
    }


def _outcome_measures(plan: Plan, outcome: SimulationOutcome) -> dict[str, Any]:
    nodes = {
        node.name: {
            "cpu": outcome.nodes[node.name].cpu / node.slots if node.name in outcome.nodes else 0.0,
            "memory": outcome.nodes[node.name].memory_mb / (SLOT_MEMORY_MB * node.slots)
            if node.name in outcome.nodes
            else 0.0,
        }
        for node in plan.cluster.nodes
    }
    latency = outcome.pipelines[plan.pipeline.name].latency
    return {
        "actual_nodes": nodes,
        "latency_ms": {f"p{100 * part:g}": 1000 * (latency.quantile(part) or 0.0) for part in QUANTILES},
        "latency_mean_ms": 1000 * latency.mean,
        "bottleneck": str(outcome.pipelines[plan.pipeline.name].busiest),
        "hops": outcome.hops,
    }


def without_ends(operators: dict[str, dict[str, float]]) -> dict[str, float]:
    """Sums over the operators, without source and sink as the document counts."""
    kept = [values for name, values in operators.items() if name not in ("source", "sink")]
    return {key: sum(values_of_one[key] for values_of_one in kept) for key in ("threads", "cpu", "memory")}
