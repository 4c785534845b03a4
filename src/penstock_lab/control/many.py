"""Many pipelines that want more than the cluster has, for a simulated day: each follows its own load by our
controller, a sharing policy divides the nodes every minute in which what they want changes, a division that would be
too late for somebody is rejected where another would not, and everybody gets no more than its share.

Sizes are in units of one node. Minima are promised; the first pipelines have a high priority.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.control.elasticity.response import units_in_time
from penstock.sharing.deadlines import share_in_time
from penstock.sharing.measures import Served, fairness_degree, jain
from penstock.sharing.registry import SHARERS
from penstock.sharing.tenants import Tenant, Tenants, equal_nodes
from penstock_lab.control.loads import TICK_SECONDS, traffic
from penstock_lab.control.ours import OurRule
from penstock_lab.control.plant import BASE_SECONDS, Plant, Site
from penstock_lab.control.rivals import TickReading

if TYPE_CHECKING:
    from penstock.cluster.topology import Cluster
    from penstock.sharing.contract import Sharer

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
    # everybody's mean over the day is the level: what is wanted together is WANTED times the cluster
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
    needs = {
        tenant.name: _in_time(plant.sites[number], controllers[number], tenant.desired)
        for number, tenant in enumerate(asking)
    }
    shares = share_in_time(sharer, Tenants.of(cluster, asking, 1), needs).shares
    for number, tenant in enumerate(tenants):
        given = int(shares.nodes.get(tenant.name, 0)) if shares.nodes else len(shares.slots.get(tenant.name, ()))
        if given >= 1:
            plant.resize(number, given)
