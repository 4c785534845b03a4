"""What `bench/chaos.py` prints of the runs it hurt."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

SLOWEST = 5


def figures_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all runs together."""
    recoveries = [(kind, seconds) for run in runs for kind, seconds in run["recoveries"]]
    seconds = [seconds for _, seconds in recoveries]
    return {
        "runs": len(runs),
        "faults": len(recoveries),
        "lost": sum(run["lost"] for run in runs),
        "doubled": sum(run["doubled"] for run in runs),
        "recovery_s_p50": float(np.quantile(seconds, 0.5)),
        "recovery_s_p90": float(np.quantile(seconds, 0.9)),
        "recovery_s_p99": float(np.quantile(seconds, 0.99)),
        "tuples": sum(run["tuples"] for run in runs),
        "kinds": dict(sorted(Counter(kind for kind, _ in recoveries).items())),
        "slowest": sorted(recoveries, key=lambda entry: -entry[1])[:SLOWEST],
        "load_average": max(run["load_average"] for run in runs),
    }
