"""Controllers judged: what each costs over an oracle that knows the future, how long it misses the target, how often it
changes; simulated, over seven loads and ten seeds.

    ./run bench elasticity [--json] [--seeds 10] [--days 2] [--trace FILE.csv ...] [--few]

`ours_slot_hours_over_oracle` (and `slot_hours_over_oracle`) is the mean over all cases of slot-hours / the oracle's -
1, `ours_outside_target_s` the mean seconds outside the latency target, `ours_changes` the mean number of changes; the
same for `band` (the Flink autoscaler's defaults), `lag` (KEDA's), `published` (003's loop) and `peak` (a plan fixed
for the peak). `constant_changes_after_first` counts what ours changes under constant load after its first change, and
`day_20_pipelines_100_nodes_s` is how long a simulated day of 20 pipelines on 100 nodes takes. By sharing policy, such a
day of pipelines that want 1.5 times the cluster: `fair-max-min_wanted`, `..._minima_missed_s`, `..._jain`,
`..._fairness` (degree of the cluster), `..._least_fairness`, `..._high_outside`, `..._other_outside` (parts of time).
`--few` adds what one who knows the future pays for few changes: `few_N_slot_hours_over_oracle` and `few_N_changes`, a
change being worth the whole pipeline for N seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from penstock.base.clock import Stopwatch
from penstock.dataflow.load import read_trace
from penstock.testing.plant import SHAPES, site, traffic, traffic_of
from penstock_lab.control.experiment import POLICIES, compare, means, run_day
from penstock_lab.control.oracle import with_few_changes

FEW_CHANGES_WORTH = (900, 3600, 7200)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--days", type=float, default=2.0)
    parser.add_argument("--loads", default=",".join(SHAPES))
    parser.add_argument("--trace", type=Path, action="append", default=[], help="CSV of time and rate")
    parser.add_argument("--few", action="store_true", help="add what few changes cost one who knows the future")
    given = parser.parse_args()
    traffics = [
        traffic(name, seed, given.days) for name in given.loads.split(",") if name for seed in range(given.seeds)
    ]
    traffics += [traffic_of(read_trace(path), path.stem, given.days * 86_400) for path in given.trace]
    sites = [site(case.seed) for case in traffics]
    judged = compare(sites, traffics)
    figures: dict[str, Any] = {}
    for name, of_all in means(judged).items():
        figures.update({f"{name}_{measure}": value for measure, value in of_all.items()})
    for measure in ("slot_hours_over_oracle", "outside_target_s", "changes"):
        figures[measure] = figures[f"ours_{measure}"]
    constant = [max(0, case.changes - 1) for case in judged["ours"] if case.load == "constant"]
    if constant:
        figures["constant_changes_after_first"] = sum(constant) / len(constant)
    if given.few:
        for worth in FEW_CHANGES_WORTH:
            over, changes = with_few_changes(sites, traffics, worth)
            figures[f"few_{worth}_slot_hours_over_oracle"], figures[f"few_{worth}_changes"] = over, changes
    for policy in POLICIES:
        watch = Stopwatch()
        day = run_day(policy, pipelines=20, nodes=100).document()
        figures["day_20_pipelines_100_nodes_s"] = watch.seconds()
        figures.update({f"{policy}_{measure}": value for measure, value in day.items() if measure != "policy"})
    if given.json:
        print(json.dumps(figures))
        return 0
    for name, value in figures.items():
        print(f"{name:<45} {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
