"""Judging controllers: ours, rules of the field, fixed plans and an oracle under the same loads; and many pipelines
that want more than there is. Traces of the user's own are judged by the bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

from penstock.pictures.chart import Chart, Panel, Series, Style
from penstock_lab.contract import Agreement, Experiment, Line
from penstock_lab.control.compare import CONTROLLERS, compare, judged_by, means
from penstock_lab.control.live import LIVE_LOADS, follow_live
from penstock_lab.control.loads import SHAPES, traffic
from penstock_lab.control.many import POLICIES, run_day
from penstock_lab.control.plant import site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_lab.contract import Case, Measures, Results
    from penstock_lab.published_file import Published

SEEDS, DAYS = 10, 2.0
LIVE_SECONDS = 150.0
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
    choices: ClassVar[tuple[str, ...]] = (
        "Loads are generated (experiments/control/loads.py); the daily one has the shape of web traffic.",
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
        live = [] if quick else [{"kind": "live", "seconds": LIVE_SECONDS}]
        return [*live, *judged, *many]

    def run_case(self, case: Case) -> Measures:
        if case["kind"] == "many":
            return run_day(case["policy"], hours=case["hours"]).document()
        if case["kind"] == "live":
            return _followed(case["seconds"])
        seeds = range(case["seeds"])
        traffics, sites = [traffic(case["load"], seed, case["days"]) for seed in seeds], [site(seed) for seed in seeds]
        measures: Measures = dict(means(compare(sites, traffics)))
        if case["load"] in SHOWN:
            for name in ("ours", "band"):
                trail = judged_by(name, sites[:1], traffics[:1], trail_every=TRAIL_EVERY)[0].trail
                measures[f"{name}_trail"] = [[at / 3600, rate, units] for at, rate, units, _ in trail]
        return measures

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        return [*self._judged(results), *self._many(results), *self._live(results)]

    def _judged(self, results: Results) -> list[Line]:
        made = []
        for done in results.where(kind="load"):
            ours, load = done.measures["ours"], done.case["load"]
            for rival in ("band", "lag", "peak"):
                theirs = done.measures[rival]
                better = (
                    ours["slot_hours_over_oracle"] <= theirs["slot_hours_over_oracle"]
                    and ours["outside_target_s"] <= theirs["outside_target_s"]
                )
                verdict = Agreement.BETTER if better else Agreement.DIFFERS
                made.append(Line(load, f"against {rival}", _shown(theirs), _shown(ours), verdict))
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
            )
            for done in results.where(kind="many")
        ]

    def _live(self, results: Results) -> list[Line]:
        return [
            Line(
                f"{load} on Spark",
                "beside the same simulated",
                live_shown(done.measures[load]["simulated"]),
                live_shown(done.measures[load]["spark"]),
                Agreement.NOT_COMPARABLE,
            )
            for done in results.where(kind="live")
            for load in LIVE_LOADS
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


def _followed(seconds: float) -> Measures:
    """One after the other, so that live runs do not take each other's cores."""
    measures: Measures = {}
    for load in LIVE_LOADS:
        measures[load] = {}
        for way in ("simulated", "spark"):
            with TemporaryDirectory(prefix="penstock-following-") as folder:
                measures[load][way] = follow_live(load, Path(folder), seconds=seconds, simulated=way == "simulated")
    return measures


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
