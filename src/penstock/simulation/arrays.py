"""The engine without events: one operator after the other, a window of time at once.

In the window [t0, t1) an operator knows all its arrivals before t1, for what sends to it was done before it. It starts
what can start before t1, and sends on what is done before t1; the rest waits for the next window. So a window may be of
any length, and memory holds only what is inside the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.simulation import contention
from penstock.simulation.layout import layout, nanoseconds
from penstock.simulation.outcome import Outcome
from penstock.simulation.pipeline_run import PipelineRun
from penstock.simulation.uses import uses_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.simulation.layout import Layout
    from penstock.simulation.system import Scenario

TUPLES_A_WINDOW = 100_000
"""Where the processor need not be shared out: windows of about so many tuples, that stay in the cache."""


def simulate_arrays(scenario: Scenario, progress: Callable[[float], None] | None = None) -> Outcome:
    length, warm_up = nanoseconds(scenario.seconds), nanoseconds(scenario.warm_up)
    layouts = [
        layout(pipeline, pipeline.stations, scenario, number) for number, pipeline in enumerate(scenario.pipelines)
    ]
    processors = processors_of(scenario, layouts)
    runs = [
        PipelineRun(scenario, pipeline, found, number, processors)
        for number, (pipeline, found) in enumerate(zip(scenario.pipelines, layouts, strict=True))
    ]
    cuts = cut_times(scenario, length, warm_up)
    step = _window(scenario, shared_out=processors is not None)
    start = 0
    while start < length:
        following = cuts[int(np.searchsorted(cuts, start, side="right"))]
        end = min(start - start % step + step, int(following))
        for run in runs:
            run.window(start, end)
        if processors is not None:
            processors.next_window(end - start)
        start = end
        if progress is not None:
            progress(start / length)
    outcomes = {run.pipeline.name: run.finish() for run in runs}
    slots, nodes = uses_of(scenario, [run.tally for run in runs])
    return Outcome(
        engine="arrays",
        seconds=scenario.seconds,
        warm_up=scenario.warm_up,
        pipelines=outcomes,
        slots=slots,
        nodes=nodes,
        hops=sum(run.tally.hops for run in runs),
        notes=tuple(note for run in runs for note in run.notes),
    )


def processors_of(scenario: Scenario, layouts: Sequence[Layout]) -> contention.Processors | None:
    """Of all slots that are ever used; None where none can be short of CPU."""
    if not contention.may_be_short(scenario, layouts):
        return None
    stations = [station for pipeline in scenario.pipelines for station in pipeline.stations]
    stations += [station for switch in scenario.switches for station in switch.stations]
    return contention.Processors(scenario, (station.slot for station in stations))


def cut_times(scenario: Scenario, length: int, warm_up: int) -> NDArray[np.int64]:
    """When a window must end whatever its length: something happens, or the measuring begins."""
    found = {length, warm_up}
    for outage in scenario.outages:
        found |= {nanoseconds(moment) for moment in (outage.start, outage.end) if moment is not None}
    found |= {nanoseconds(switch.at) for switch in scenario.switches}
    return np.array(sorted(moment for moment in found if moment <= length), dtype=np.int64)


def _window(scenario: Scenario, *, shared_out: bool) -> int:
    if shared_out:
        return max(1, nanoseconds(scenario.window_seconds))
    busiest = max(pipeline.load.peak_rate * len(pipeline.sources) for pipeline in scenario.pipelines)
    return max(1, nanoseconds(TUPLES_A_WINDOW / busiest))
