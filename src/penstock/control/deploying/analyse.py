"""Whether a round met the target, and if not, what is short and how that shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.deploying.values import Analysis, ShortOf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.deploying.values import DeployTarget, RoundReading

BUSY = 0.8
"""An operator at work for so much of the time while the queue grows is short."""
NODE_BUSY = 0.9
NEARLY = 0.99
"""Of the target: the rest is how counting ends."""


def analyse(reading: RoundReading, target: DeployTarget, gains: Mapping[str, float]) -> Analysis:
    """`gains`: tuples an operator gets for one of the source."""
    rate_met = reading.throughput >= NEARLY * target.rate
    taken = float("inf") if reading.latency_ms is None else reading.latency_ms
    if rate_met and (target.latency_ms is None or taken <= target.latency_ms):
        return Analysis(met=True, shortage=ShortOf.NOTHING, evidence=f"{reading.throughput:.4g} tuples/s")
    if rate_met:
        evidence = f"the rate is met, a tuple takes {taken:.0f} ms of {target.latency_ms:.0f}"
        return Analysis(met=False, shortage=ShortOf.LATENCY, evidence=evidence)
    busy = sorted(reading.operators.items(), key=lambda entry: entry[1].busy, reverse=True)
    short = tuple(
        name
        for name, operator in busy
        if operator.busy >= BUSY and operator.true_rate < target.rate * gains.get(name, 1.0) / NEARLY
    )
    if short:
        first = reading.operators[short[0]]
        wanted = target.rate * gains.get(short[0], 1.0)
        evidence = (
            f"operator '{short[0]}' is at work {first.busy:.0%} of the time on {first.threads} threads: it does "
            f"{first.true_rate:.4g} tuples/s and {wanted:.4g} are wanted"
        )
        return Analysis(met=False, shortage=ShortOf.OPERATOR, short=short, evidence=evidence)
    full = {node: used for node, used in reading.node_cpu.items() if used >= NODE_BUSY}
    if full:
        node = max(full, key=lambda name: full[name])
        evidence = f"node '{node}' uses {full[node]:.0%} of its CPU"
        return Analysis(met=False, shortage=ShortOf.NODE, short=tuple(reading.operators), evidence=evidence)
    seen = f"the busiest operator, '{busy[0][0]}', is at work {busy[0][1].busy:.0%}" if busy else "no operator was seen"
    return Analysis(met=False, shortage=ShortOf.ENGINE, evidence=f"nothing is at its limit ({seen}): the engine is")
