"""Every allocator with every placer on the nine micro cases: linear, diamond and star at 50, 100 and 200 tuples/s.

    python bench/plan_policies.py [--allocator NAME] [--placer NAME]

Of every pair: slots asked for in all nine together (source, sink and growth included), in how many the predicted rate
reaches the planned one under slot-aware and under shuffle routing, the highest load of a slot, the mean network cost,
and seconds of CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import mean
from typing import TYPE_CHECKING

import penstock
from penstock.planning.compare import pairs
from penstock.planning.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.base.errors import Refusal

CASES = [(pipeline, rate) for pipeline in ("linear", "diamond", "star") for rate in (50.0, 100.0, 200.0)]


def answers(allocator: str, placer: str) -> tuple[list[tuple[float, Plan | Refusal | str]], float]:
    """The answer to every case with the rate asked for, and the CPU seconds all took."""
    start = time.process_time()
    found = [
        (rate, row.answer)
        for pipeline, rate in CASES
        for row in penstock.compare(pipeline, rate, allocator=allocator, placer=placer)
    ]
    return found, time.process_time() - start


def top_load(plan: Plan) -> float:
    return max(max(used.cpu, used.memory) for used in plan.prediction.slots.values())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--allocator", help="only this one")
    parser.add_argument("--placer", help="only this one")
    options = parser.parse_args(arguments)
    print(f"{'policies':<24} {'planned':>7} {'slots':>6} {'slot-aware':>10} {'shuffle':>8}", end="")
    print(f" {'top load':>9} {'network':>8} {'seconds':>8}")
    for allocator, placer in pairs(options.allocator, options.placer):
        found, seconds = answers(allocator, placer)
        plans = [(rate, answer) for rate, answer in found if isinstance(answer, Plan)]
        line = f"{f'{allocator} + {placer}':<24} {f'{len(plans)}/{len(CASES)}':>7}"
        if plans:
            slots = sum(plan.slots_asked for _, plan in plans)
            aware = sum(plan.prediction.slot_aware.rate >= rate * (1 - 1e-9) for rate, plan in plans)
            shuffled = sum(plan.prediction.shuffle.rate >= rate * (1 - 1e-9) for rate, plan in plans)
            load = max(top_load(plan) for _, plan in plans)
            network = mean(plan.prediction.network_cost for _, plan in plans)
            line += f" {slots:>6} {aware:>10} {shuffled:>8} {f'{100 * load:.0f} %':>9} {network:>8.2f} {seconds:>8.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
