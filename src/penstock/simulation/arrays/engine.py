"""The engine without events: one operator after the other, a window of time at once.

In the window [t0, t1) an operator knows all its arrivals before t1, for what sends to it was done before it. It starts
what can start before t1, and sends on what is done before t1; the rest waits for the next window. So a window may be of
any length, and memory holds only what is inside the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.simulation.arrays.pipeline_run import PipelineRun
from penstock.simulation.layout import layout
from penstock.simulation.outcome import SimulationOutcome
from penstock.simulation.uses import uses_of
from penstock.simulation.windows import processors_of, window_ends

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.simulation.system import Scenario


def simulate_arrays(scenario: Scenario, progress: Callable[[float], None] | None = None) -> SimulationOutcome:
    layouts = [
        layout(pipeline, pipeline.stations, scenario, number) for number, pipeline in enumerate(scenario.pipelines)
    ]
    processors = processors_of(scenario, layouts)
    runs = [
        PipelineRun(scenario, pipeline, own_layout, number, processors)
        for number, (pipeline, own_layout) in enumerate(zip(scenario.pipelines, layouts, strict=True))
    ]
    for start, end in window_ends(scenario, shared_out=processors is not None):
        for run in runs:
            run.window(start, end)
        if processors is not None:
            processors.next_window(end - start)
        if progress is not None:
            progress(end / (scenario.seconds * 1e9))
    outcomes = {run.pipeline.name: run.finish() for run in runs}
    slots, nodes = uses_of(scenario, [run.counters for run in runs])
    return SimulationOutcome(
        engine="arrays",
        seconds=scenario.seconds,
        warm_up=scenario.warm_up,
        pipelines=outcomes,
        slots=slots,
        nodes=nodes,
        hops=sum(run.counters.hops for run in runs),
        notes=tuple(note for run in runs for note in run.notes),
    )
