"""How time is cut into windows, the same for both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.simulation.arrays import contention
from penstock.simulation.layout import nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.simulation.layout import StageLayout
    from penstock.simulation.system import Scenario

TUPLES_A_WINDOW = 100_000
"""Where the processor need not be shared out: windows of about so many tuples, that stay in the cache."""

MOST_WINDOWS = 5000
"""Where the processor need not be shared out: windows of more tuples where there would be more than so many."""


def processors_of(scenario: Scenario, layouts: Sequence[StageLayout]) -> contention.Processors | None:
    """Of all slots that are ever used; None where none can be short of CPU."""
    if not contention.may_be_short(scenario, layouts):
        return None
    stations = [station for pipeline in scenario.pipelines for station in pipeline.stations]
    stations += [station for switch in scenario.switches for station in switch.stations]
    return contention.Processors(scenario, (station.slot for station in stations))


def window_ends(scenario: Scenario, *, shared_out: bool) -> Iterator[tuple[int, int]]:
    """(start, end) of every window: as long as the processor is shared out for, or as there are enough tuples for;
    shorter where something happens or the measuring begins."""
    length = nanoseconds(scenario.seconds)
    cuts = cut_times(scenario, length)
    step = _step(scenario) if not shared_out else max(1, nanoseconds(scenario.window_seconds))
    start = 0
    for cut in cuts:
        while start < cut:
            end = min(start - start % step + step, cut)
            yield start, end
            start = end


def cut_times(scenario: Scenario, length: int) -> list[int]:
    """When a window must end whatever its length."""
    moments = {length, nanoseconds(scenario.warm_up)}
    for outage in scenario.outages:
        moments |= {nanoseconds(moment) for moment in (outage.start, outage.end) if moment is not None}
    moments |= {nanoseconds(switch.at) for switch in scenario.switches}
    return sorted(moment for moment in moments if moment <= length)


def _step(scenario: Scenario) -> int:
    busiest = max(pipeline.load.peak_rate * len(pipeline.sources) for pipeline in scenario.pipelines)
    return max(1, nanoseconds(TUPLES_A_WINDOW / busiest), nanoseconds(scenario.seconds) // MOST_WINDOWS)
