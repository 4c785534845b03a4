"""003's loop on simulated clusters: the document's cases by both planners, its figures beside.

    ./run bench deploying [--json]

What its operators cost beyond their profiles is not published; what its first rounds reached is (78, 68 and 75 % of
2,000 tuples/s for Linear, Diamond and Star; Linear went from 3 to 6 nodes; its figures show up to 7 rounds). Here every
tuple costs 1/0.78, 1/0.68 and 1/0.75 of its profile. `linear_measured_rounds` and so on count rounds, `..._nodes` the
nodes of the last, `..._first` is the part of the target the first round reached, `..._met` is 1 where it was met.
"""

from __future__ import annotations

import argparse
import json
import sys

from penstock.experiments.p_deployer.pipelines import BUDGET, NODE_SLOTS, library, nodes, pipelines
from penstock.verbs.deploy import deploy

FIRST_ROUND = {"linear": 0.78, "diamond": 0.68, "star": 0.75}
"""Of the target, in the document's first round (section 7.2)."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures: dict[str, float] = {}
    for name, part in FIRST_ROUND.items():
        for planner in ("published", "measured"):
            found = deploy(
                pipelines()[name],
                2000.0,
                latency_ms=500.0,
                budget=BUDGET,
                node_slots=NODE_SLOTS,
                planner=planner,
                allocator="profiled",
                placer="packing",
                models=library(for_metis=False),
                simulated=True,
                truth={"*": 1 / part},
                nodes=nodes,
                most_rounds=12,
            )
            parts = [f"{done.reading.throughput / 2000:.0%} on {done.plan.nodes}" for done in found.rounds]
            if not given.json:
                print(
                    f"{name:<8} {planner:<10} {found.reason:<14} {', '.join(parts)}; the document's first: {part:.0%}"
                )
            key = f"{name}_{planner}"
            figures[f"{key}_rounds"] = len(found.rounds)
            figures[f"{key}_nodes"] = found.rounds[-1].plan.nodes if found.rounds else 0
            figures[f"{key}_first"] = found.rounds[0].reading.throughput / 2000 if found.rounds else 0.0
            figures[f"{key}_met"] = float(found.met)
    if given.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
