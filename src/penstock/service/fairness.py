"""Fairness of the cluster's division: of every pipeline and of all together, so far and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.control.core.states import PipelineState
from penstock.control.metrics import Metric
from penstock.sharing.measures import fairness_degree, jain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.control.core.records import ControllerState
    from penstock.control.store.store import Store

OVER = {PipelineState.KILLED, PipelineState.ENDING, PipelineState.FAILED}


def of_all(degrees: Sequence[float]) -> dict[str, float | None]:
    """The mean of the degrees, the least, and Jain's index of them; None if there are none."""
    if not degrees:
        return {"degree": None, "least": None, "jain": None}
    return {"degree": fairness_degree(degrees), "least": min(degrees), "jain": jain(degrees)}


def fairness(state: ControllerState, store: Store, since: float) -> dict[str, Any]:
    """`over_time`: window by window, of those who had a degree then."""
    living = {record.name: record.served for record in state.pipelines.values() if record.state not in OVER}
    return {
        **of_all([served.degree for served in living.values()]),
        "pipelines": {
            name: {"degree": served.degree, "allocated": served.allocated, "needed": served.needed}
            for name, served in living.items()
        },
        "over_time": _over_time(store, tuple(living), since),
    }


def _over_time(store: Store, names: Sequence[str], since: float) -> list[dict[str, Any]]:
    by_window: dict[tuple[float, float], list[float]] = {}
    for name in names:
        for at, seconds, readings in store.windows(name, since):
            degree = _degree(readings)
            if degree is not None:
                by_window.setdefault((at, seconds), []).append(degree)
    return [{"at": at, "seconds": seconds, **of_all(by_window[at, seconds])} for at, seconds in sorted(by_window)]


def _degree(readings: Mapping[str, Mapping[str, float]]) -> float | None:
    return readings.get("", {}).get(Metric.FAIRNESS)
