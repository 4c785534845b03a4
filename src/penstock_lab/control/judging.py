"""Controllers under the same loads on the same plant: what each costs, misses and changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock_lab.control import oracle
from penstock_lab.control.loads import TICK_SECONDS
from penstock_lab.control.plant import Plant
from penstock_lab.control.rivals import BandRule, FixedSize, LagRule, PublishedLoop, TickReading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock_lab.control.loads import LoadTrace
    from penstock_lab.control.plant import Site
    from penstock_lab.control.rivals import SizeRule

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
