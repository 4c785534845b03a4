"""Task profiles of operators from a run of them: what 003 measures at every tenth of a minute, from one report.

    t_soj = seconds at work / tuples                                  a tuple occupies a thread so long
    c_p  <= 100 * min(seconds at work, CPU of all slots) / tuples     just that where an operator computes all the time
    c_t   = 100 * CPU of the engine / tuples of all operators         moving and handing over are not told apart
    m_pt  = memory of the slots * (own tuples / all) / (tuples/s received and sent)

What a call of an operator used of the CPU is not measured, only how long it took: c_p is a bound, and too high for an
operator that waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.modelling.task_profile import TaskProfile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.report.report import Report


def task_profiles(report: Report, counted_seconds: float) -> Mapping[str, TaskProfile]:
    """Of every operator that got tuples; none of a run that did nothing. Tuples were counted for `counted_seconds`,
    everything else for the seconds of the report."""
    seen = {name: work for name, work in report.operators.items() if work.received > 0}
    handled = sum(work.received + work.sent for work in seen.values())
    received = sum(work.received for work in seen.values())
    if not seen or report.seconds <= 0:
        return {}
    longer = counted_seconds / report.seconds
    slots_cpu = sum(cpu for cpu, _ in report.slots.values()) * report.seconds
    memory = sum(held for _, held in report.slots.values())
    return {
        name: TaskProfile(
            name=name,
            sojourn_seconds=longer * work.busy_seconds / work.received,
            processing_cpu=100 * longer * min(work.busy_seconds, slots_cpu) / work.received,
            moving_cpu=100 * (report.engine_cpu or 0.0) * counted_seconds / received,
            memory_mb=memory / handled * counted_seconds,
        )
        for name, work in seen.items()
    }
