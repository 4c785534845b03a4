"""Judging controllers: ours, rules of the field, fixed plans and an oracle under the same loads; and many pipelines
that want more than there is. Traces of the user's own are judged by the bench."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock import Tenant, Tenants
from penstock.control.elasticity.estimates import units_in_time
from penstock.planning.sharing.measures import Served, fairness_degree, jain
from penstock.planning.sharing.share import share_in_time
from penstock.plugins import SHARERS, Chart, Panel, Series, Style, equal_nodes
from penstock.testing import Plant, Site, site, traffic
from penstock.testing.plant import BASE_SECONDS, SHAPES, TICK_SECONDS
from penstock_lab.contract import Agreement, Experiment, Line
from penstock_lab.control import oracle
from penstock_lab.control.controllers import BandRule, FixedSize, LagRule, OurRule, PublishedLoop, TickReading, ours

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock import Cluster
    from penstock.plugins import Sharer
    from penstock.testing import LoadTrace
    from penstock_lab.contract import Case, Measures, Results
    from penstock_lab.control.controllers import SizeRule
    from penstock_lab.published_values import Published


# Many pipelines that want more than the cluster has, for a simulated day: each follows its own load with our
# controller, a sharing policy divides the nodes every minute in which demands change, a division that misses a deadline
# is rejected if another one would not, and no pipeline gets more than its share.
#
# Sizes are in units of one node. Minima are promised; the first pipelines have a high priority.


WANTED = 1.5
"""Times the cluster that all together want at their peaks, on average over the day."""
POLICIES = ("fair-max-min", "fair-priority", "dynamic-priority")
HIGH_PRIORITY = 4
MIX = ("daily", "sine", "step", "spike", "drift")
DIVIDE_SECONDS = 60.0
"""A change of what is wanted leads to a new division at most so often."""


@dataclass(frozen=True)
class Day:
    """What a day under one policy came to."""

    policy: str
    wanted: float
    """Mean of what all wanted, as a part of the cluster."""
    minima_missed_s: float
    """Pipeline-seconds with less than the minimum."""
    jain: float
    """Of the pipelines' fairness degrees."""
    fairness: float
    """Degree of the cluster: the mean of the pipelines'."""
    least_fairness: float
    high_outside: float
    """Part of the time high-priority pipelines were outside their target."""
    other_outside: float
    changes: float
    degrees: tuple[float, ...] = ()

    def document(self) -> dict[str, float | str]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "degrees"}


def run_day(policy: str, pipelines: int = 20, nodes: int = 100, seed: int = 0, hours: float = 24.0) -> Day:
    sharer = SHARERS.create(policy)
    level = WANTED * nodes / pipelines * 100.0 * 0.85
    traffics = [
        traffic(MIX[number % len(MIX)], seed + number, hours / 24, mean_rate=level) for number in range(pipelines)
    ]
    # each pipeline's mean over the day is the level: together they want WANTED times the cluster
    traffics = [replace(traffic, rates=traffic.rates * level / traffic.rates.mean()) for traffic in traffics]
    sites = [Site(latency_target_s=30.0, most_units=nodes) for _ in traffics]
    controllers = [OurRule(site) for site in sites]
    minimum = max(1, nodes // (4 * pipelines))
    starts = [max(minimum, nodes // pipelines)] * pipelines
    plant = Plant(sites, traffics, starts)
    cluster = equal_nodes(nodes, 1, "")
    tenants = [
        Tenant(name=f"p{number}", desired=starts[number], minimum=minimum, priority=1 if number < HIGH_PRIORITY else 2)
        for number in range(pipelines)
    ]
    wanted, served, missed_s, wanted_sum = list(starts), [Served()] * pipelines, 0.0, 0.0
    rates = np.stack([traffic.rates for traffic in traffics], axis=1)
    divided_at, dirty = -DIVIDE_SECONDS, True
    for tick in range(len(rates)):
        plant.tick(rates[tick])
        for number, controller in enumerate(controllers):
            units = controller.decide(
                TickReading(
                    plant.now,
                    float(rates[tick, number]),
                    float(plant.processed[number]) / TICK_SECONDS,
                    float(plant.backlog[number]),
                    float(plant.busy[number]),
                    float(plant.latency[number]),
                    int(plant.held[number]),
                    wanted[number],
                )
            )
            if units != wanted[number]:
                wanted[number], dirty = units, True
            held = float(plant.asked[number])
            served[number] = served[number].after(TICK_SECONDS, held, float(wanted[number]))
            missed_s += TICK_SECONDS * (held < minimum)
        wanted_sum += sum(wanted) / nodes
        if dirty and plant.now - divided_at >= DIVIDE_SECONDS:
            divided_at, dirty = plant.now, False
            _divide(plant, sharer, tenants, wanted, served, cluster, controllers)
    seconds = len(rates) * TICK_SECONDS
    degrees = tuple(service.degree for service in served)
    outside = plant.outside_s / seconds
    return Day(
        policy,
        wanted_sum / len(rates),
        missed_s,
        jain(degrees),
        fairness_degree(degrees),
        min(degrees),
        float(outside[:HIGH_PRIORITY].mean()),
        float(outside[HIGH_PRIORITY:].mean()),
        float(plant.changes.mean()),
        degrees,
    )


def _in_time(site: Site, controller: OurRule, most: int) -> int:
    """Units with which its tuples are predicted to be in time, by what its controller knows."""
    memory = controller.memory
    if memory.smoothed is None:
        return 0
    speed = site.model_rate * memory.speed.factor
    cost = (BASE_SECONDS + site.interval_s) / 2
    return units_in_time(memory.smoothed.level, site.latency_target_s, cost, most, lambda units: units * speed)


def _divide(
    plant: Plant,
    sharer: Sharer,
    tenants: list[Tenant],
    wanted: list[int],
    served: list[Served],
    cluster: Cluster,
    controllers: list[OurRule],
) -> None:
    """A fresh division of the nodes by the policy; only what differs is changed."""
    asking = [
        replace(tenant, desired=max(tenant.minimum, units), fairness=service.degree)
        for tenant, units, service in zip(tenants, wanted, served, strict=True)
    ]
    asking = [
        replace(tenant, in_time=_in_time(plant.sites[number], controllers[number], tenant.desired))
        for number, tenant in enumerate(asking)
    ]
    shares = share_in_time(sharer, Tenants.of(cluster, asking, 1)).shares
    for number, tenant in enumerate(tenants):
        given = int(shares.nodes.get(tenant.name, 0)) if shares.nodes else len(shares.slots.get(tenant.name, ()))
        if given >= 1:
            plant.resize(number, given)


# Controllers under the same loads on the same plant: what each costs, misses and changes.


FIRST_LOAD = 0.85
"""Target load of the size everybody starts with, by the models as they were profiled."""
MEASURING_ERROR = 0.02
"""Spread of what executors say of how busy they were."""


@dataclass(frozen=True)
class Judged:
    """One controller under one load."""

    load: str
    seed: int
    slot_hours: float
    outside_s: float
    changes: int
    changed_at: tuple[float, ...] = ()
    trail: tuple[tuple[float, float, float, float], ...] = ()
    """(seconds, rate, units, latency) where a trail was asked for."""


def first_size(site: Site, traffic: LoadTrace) -> int:
    return max(1, math.ceil(float(traffic.rates[:6].mean()) / (site.model_rate * FIRST_LOAD)))


def peak_size(site: Site, traffic: LoadTrace) -> int:
    """A plan for the highest minute of all, at the same target load."""
    minutes = traffic.rates[: len(traffic.rates) // 6 * 6].reshape(-1, 6).mean(axis=1)
    return max(1, math.ceil(float(minutes.max()) / site.unit_rate))


def judge(
    sites: Sequence[Site],
    traffics: Sequence[LoadTrace],
    make: Callable[[Site, LoadTrace], SizeRule],
    *,
    trail_every: int = 0,
    starts: Sequence[int] | None = None,
) -> list[Judged]:
    """All cases together, a tick at a time."""
    controllers = [make(site, traffic) for site, traffic in zip(sites, traffics, strict=True)]
    plant = Plant(sites, traffics, starts or [first_size(*case) for case in zip(sites, traffics, strict=True)])
    rates = np.stack([traffic.rates for traffic in traffics], axis=1)
    errors = np.random.default_rng(5).normal(1, MEASURING_ERROR, rates.shape)
    trails: list[list[tuple[float, float, float, float]]] = [[] for _ in controllers]
    changed: list[list[float]] = [[] for _ in controllers]
    for tick in range(len(rates)):
        plant.tick(rates[tick])
        busy = np.clip(plant.busy * errors[tick], 0, 1).tolist()
        done, backlog, latency = (
            (plant.processed / TICK_SECONDS).tolist(),
            plant.backlog.tolist(),
            plant.latency.tolist(),
        )
        held, asked, now_rates = plant.held.tolist(), plant.asked.tolist(), rates[tick].tolist()
        for case, controller in enumerate(controllers):
            units = controller.decide(
                TickReading(
                    plant.now,
                    now_rates[case],
                    done[case],
                    backlog[case],
                    busy[case],
                    latency[case],
                    int(held[case]),
                    int(asked[case]),
                )
            )
            if units != asked[case]:
                plant.resize(case, units)
                changed[case].append(plant.now)
            if trail_every and tick % trail_every == 0:
                trails[case].append((plant.now, now_rates[case], asked[case], latency[case]))
    return [
        Judged(traffic.name, traffic.seed, float(plant.slot_seconds[case]) / 3600, float(plant.outside_s[case]),
               int(plant.changes[case]), tuple(changed[case]), tuple(trails[case]))
        for case, traffic in enumerate(traffics)
    ]  # fmt: skip


def judge_oracle(sites: Sequence[Site], traffics: Sequence[LoadTrace]) -> list[Judged]:
    plant = oracle.play(sites, traffics, oracle.plan(sites, traffics)).plant
    return [
        Judged(traffic.name, traffic.seed, float(plant.slot_seconds[case]) / 3600, float(plant.outside_s[case]),
               int(plant.changes[case]))
        for case, traffic in enumerate(traffics)
    ]  # fmt: skip


def judge_peak(sites: Sequence[Site], traffics: Sequence[LoadTrace]) -> list[Judged]:
    starts = [peak_size(*case) for case in zip(sites, traffics, strict=True)]
    return judge(sites, traffics, lambda site, traffic: FixedSize(peak_size(site, traffic)), starts=starts)


RIVALS: dict[str, Callable[[Site, LoadTrace], SizeRule]] = {
    "band": lambda site, _: BandRule(site),
    "lag": lambda site, _: LagRule(site),
    "published": lambda site, _: PublishedLoop(site),
}


# All controllers under the same cases, and what that comes to in the mean.


CONTROLLERS = ("ours", "band", "lag", "published", "peak", "oracle")


def judged_by(name: str, sites: Sequence[Site], traffics: Sequence[LoadTrace], *, trail_every: int = 0) -> list[Judged]:
    """One controller, by name, in all cases."""
    if name == "oracle":
        return judge_oracle(sites, traffics)
    if name == "peak":
        return judge_peak(sites, traffics)
    return judge(sites, traffics, ours if name == "ours" else RIVALS[name], trail_every=trail_every)


def compare(
    sites: Sequence[Site], traffics: Sequence[LoadTrace], on_message: Callable[[str], None] | None = None
) -> dict[str, list[Judged]]:
    judged = {}
    for name in CONTROLLERS:
        if on_message is not None:
            on_message(name)
        judged[name] = judged_by(name, sites, traffics)
    return judged


def means(judged: Mapping[str, Sequence[Judged]]) -> dict[str, dict[str, float]]:
    """By controller: slot-hours over the oracle's (as a part of them), seconds outside the target, changes."""
    best = judged["oracle"]
    return {
        name: {
            "slot_hours_over_oracle": _mean(
                [case.slot_hours / least.slot_hours - 1 for case, least in zip(cases, best, strict=True)]
            ),
            "outside_target_s": _mean([case.outside_s for case in cases]),
            "changes": _mean([case.changes for case in cases]),
        }
        for name, cases in judged.items()
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


SEEDS, DAYS = 10, 2.0
QUICK_SEEDS, QUICK_DAYS = 2, 1.0
SHOWN = ("daily", "step", "spike")
"""Loads whose course is drawn."""
TRAIL_EVERY = 30


@dataclass(frozen=True)
class Control(Experiment):
    name: ClassVar[str] = "control"
    title: ClassVar[str] = "Controllers judged over days of load"
    figures: ClassVar[str] = "nothing published: 004 claims elasticity and shows none"
    published: ClassVar[str | None] = None
    own: ClassVar[bool] = True
    choices: ClassVar[tuple[str, ...]] = (
        "Loads are generated (`penstock.testing.traffic`); the daily one has the shape of web traffic.",
        "Everybody starts with the size the profiled models give, which are wrong by up to 15 % either way.",
        "band is the Flink autoscaler with its defaults, lag is KEDA's Kafka rule with a threshold of a quarter of the "
        "latency target's worth of tuples per unit, published is 003's loop kept going.",
        "The oracle knows load and losses, pays for changes as all do, and looks for the fewest slot-hours without a "
        "second outside the target; it changes as often as that takes.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        seeds, days = (QUICK_SEEDS, QUICK_DAYS) if quick else (SEEDS, DAYS)
        judged = [{"kind": "load", "load": load, "seeds": seeds, "days": days} for load in SHAPES]
        hours = 6.0 if quick else 24.0
        many = [{"kind": "many", "policy": policy, "hours": hours} for policy in POLICIES]
        return [*judged, *many]

    def run_case(self, case: Case) -> Measures:
        if case["kind"] == "many":
            return run_day(case["policy"], hours=case["hours"]).document()
        seeds = range(case["seeds"])
        traffics, sites = [traffic(case["load"], seed, case["days"]) for seed in seeds], [site(seed) for seed in seeds]
        measures: Measures = dict(means(compare(sites, traffics)))
        if case["load"] in SHOWN:
            for name in ("ours", "band"):
                trail = judged_by(name, sites[:1], traffics[:1], trail_every=TRAIL_EVERY)[0].trail
                measures[f"{name}_trail"] = [[at / 3600, rate, units] for at, rate, units, _ in trail]
        return measures

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        return [*self._judged(results), *self._many(results)]

    def _judged(self, results: Results) -> list[Line]:
        made = []
        for done in results.where(kind="load"):
            ours, load = done.measures["ours"], done.case["load"]
            for rival in ("band", "lag", "peak"):
                theirs = done.measures[rival]
                gains = [theirs[name] - ours[name] for name in ("slot_hours_over_oracle", "outside_target_s")]
                verdict, why = Agreement.DIFFERS, "it costs less, and is outside the target for longer"
                if gains[0] < 0:
                    why = "it costs more, and is outside the target for less time"
                if min(gains) >= 0 and max(gains) > 0:
                    verdict, why = Agreement.BETTER, ""
                elif max(gains) <= 0:
                    verdict, why = (
                        Agreement.WORSE,
                        "it costs no less, and is outside the target no shorter",
                    )
                made.append(Line(load, f"against {rival}", _shown(theirs), _shown(ours), verdict, why))
        return made

    def _many(self, results: Results) -> list[Line]:
        return [
            Line(
                f"20 pipelines, {done.case['policy']}",
                f"they want {done.measures['wanted']:.2f} of the cluster",
                "-",
                f"minima missed {done.measures['minima_missed_s']:.0f} s, Jain {done.measures['jain']:.3f}, fairness "
                f"{done.measures['fairness']:.3f} (least {done.measures['least_fairness']:.3f}), high priority outside "
                f"{done.measures['high_outside']:.2%}, others {done.measures['other_outside']:.0%}",
                Agreement.NOT_COMPARABLE,
                "nothing is published",
            )
            for done in results.where(kind="many")
        ]

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        judged = results.where(kind="load")
        loads = tuple(done.case["load"] for done in judged)
        panels = tuple(
            Panel(
                title,
                "load",
                label,
                tuple(
                    Series(name, tuple(scale * done.measures[name][measure] for done in judged))
                    for name in CONTROLLERS
                    if name not in left_out
                ),
                loads,
            )
            for title, label, measure, scale, left_out in (
                ("Cost", "% slot-hours over the oracle", "slot_hours_over_oracle", 100.0, ("oracle", "lag")),
                ("Missed", "seconds outside the target", "outside_target_s", 1.0, ("oracle", "lag")),
                ("Restless", "changes", "changes", 1.0, ("oracle", "lag", "peak")),
            )
        )
        courses = tuple(
            Panel(
                done.case["load"],
                "hours",
                "units, and load in units of 100 tuples/s",
                (
                    Series("load", _column(done.measures["ours_trail"], 1, 0.01), Style.LINE, _hours(done.measures)),
                    Series("ours", _column(done.measures["ours_trail"], 2), Style.LINE, _hours(done.measures)),
                    Series("band", _column(done.measures["band_trail"], 2), Style.LINE, _hours(done.measures)),
                ),
            )
            for done in judged
            if done.case["load"] in SHOWN
        )
        note = "lag is left out: it costs and misses many times as much"
        return (
            Chart("judged", "Controllers against an oracle", panels, note, columns=3),
            Chart("courses", "How sizes follow loads", courses, columns=1),
        )


def live_shown(figures: Measures) -> str:
    met, catch_up, predicted = (figures[name] for name in ("met_s", "catch_up_s", "predicted_catch_up_s"))
    words = [
        f"{60 * figures['slot_hours']:.1f} slot-minutes, {figures['outside_s']:.0f} s outside, "
        f"{figures['changes']:.0f} changes"
    ]
    if met is not None:
        words.append(f"met after {met:.0f} s")
    if catch_up is not None and predicted is not None:
        words.append(f"caught up in {catch_up:.0f} s, predicted {predicted:.0f}")
    if "lost" in figures:
        words.append(f"{figures['lost']:.0f} lost, {figures['doubled']:.0f} doubled")
    return "; ".join(words)


def _shown(figures: Measures) -> str:
    return (
        f"{figures['slot_hours_over_oracle']:+.0%} slot-hours, {figures['outside_target_s']:,.0f} s outside, "
        f"{figures['changes']:.1f} changes"
    )


def _column(trail: Sequence[Sequence[float]], position: int, scale: float = 1.0) -> tuple[float, ...]:
    return tuple(scale * row[position] for row in trail)


def _hours(measures: Measures) -> tuple[float, ...]:
    return _column(measures["ours_trail"], 0)
