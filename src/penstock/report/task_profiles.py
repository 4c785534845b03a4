"""Task profiles of operators from the report of a run: P-Deployer's monitoring.

Of a placed run that sampled its operators (`sample_every`), with S rows/s:

    c_p   = 100 * CPU of the sampled calls / sampled rows                     points per row/s
    t_soj = seconds of the sampled calls / sampled rows if they wait for more than half of that time, else c_p / 100
    c_t   = 100 * CPU of moving rows / rows that crossed from or to another process
    m_pt  = memory held / rows/s received and sent

A call that computes takes longer if it waits for a core or for Python's lock: that is no time it needs, so that only
calls that wait for something else are bound by it.

Other runs measure neither the CPU of calls nor the rows that crossed. Their c_p and c_t are bounds:

    t_soj  = seconds at work / rows
    c_p   <= 100 * min(seconds at work, CPU of all slots) / rows
    c_t   <= 100 * CPU of the engine / rows of all operators
    m_pt   = memory of the slots * (own rows / all) / (rows/s received and sent)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.topology import CPU_POINTS_PER_SLOT
from penstock.modelling.task_profile import TaskProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.modelling.model import MeasuredOn
    from penstock.report.report import Report, TaskObservation

WAITS = 0.5
"""Part of its time that code waits if it is bound by waiting."""
MIN_SAMPLES = 5
"""Fewer timed rows say nothing."""


def task_profiles(report: Report, counted_seconds: float | None = None) -> Mapping[str, TaskProfile]:
    """Return the profile of every operator that received rows; none of a run that did nothing.

    `counted_seconds`: how long rows were counted, if longer than the seconds of the report."""
    if report.tasks:
        return {
            name: _sampled(name, task, report.seconds)
            for name, task in report.tasks.items()
            if task.sampled_rows >= MIN_SAMPLES and task.rows
        }
    return _bounds(report, report.seconds if counted_seconds is None else counted_seconds)


def _sampled(name: str, task: TaskObservation, seconds: float) -> TaskProfile:
    each = task.sampled_seconds / task.sampled_rows
    cpu = task.sampled_cpu_seconds / task.sampled_rows
    waits = cpu < (1 - WAITS) * each
    how = f"measured: {task.sampled_rows:,} calls of {task.rows:,} in a placed run"
    moving = f"measured: CPU beside the code of {task.crossed:,} rows that crossed between processes"
    return TaskProfile(
        name=name,
        sojourn_seconds=each if waits else cpu,
        processing_cpu=CPU_POINTS_PER_SLOT * cpu,
        moving_cpu=CPU_POINTS_PER_SLOT * task.moving_cpu_seconds / task.crossed if task.crossed else 0.0,
        memory_mb=task.held_mb * seconds / task.handled if task.handled else 0.0,
        provenance={
            "sojourn_seconds": how if waits else f"{how}; it computes, so this is its CPU",
            "processing_cpu": how,
            "moving_cpu": moving if task.crossed else "unknown: no row crossed between processes",
            "memory_mb": "measured: memory that its processes gained, over rows/s",
        },
    )


def _bounds(report: Report, counted_seconds: float) -> Mapping[str, TaskProfile]:
    seen = {name: work for name, work in report.operators.items() if work.received > 0}
    handled = sum(work.received + work.sent for work in seen.values())
    received = sum(work.received for work in seen.values())
    if not seen or report.seconds <= 0:
        return {}
    longer = counted_seconds / report.seconds
    slots_cpu = sum(cpu for cpu, _ in report.slots.values()) * report.seconds
    memory = sum(held for _, held in report.slots.values())
    how = {
        "sojourn_seconds": "measured: seconds at work over rows",
        "processing_cpu": "at most: a call may have waited",
        "moving_cpu": "at most: all CPU of the engine",
        "memory_mb": "measured: memory of the slots, by rows",
    }
    return {
        name: TaskProfile(
            name=name,
            sojourn_seconds=longer * work.busy_seconds / work.received,
            processing_cpu=CPU_POINTS_PER_SLOT * longer * min(work.busy_seconds, slots_cpu) / work.received,
            moving_cpu=CPU_POINTS_PER_SLOT * (report.engine_cpu or 0.0) * counted_seconds / received,
            memory_mb=memory / handled * counted_seconds,
            provenance=how,
        )
        for name, work in seen.items()
    }


def named_profiles(
    profiles: Mapping[str, TaskProfile], name_of: Callable[[str], str], measured_on: MeasuredOn
) -> list[TaskProfile]:
    """Return profiles of operators by the names that pipelines use for them; of several operators with one name, the
    largest costs."""
    named: dict[str, TaskProfile] = {}
    for operator, profile in profiles.items():
        name = name_of(operator)
        known = named.get(name, profile)
        named[name] = profile.model_copy(
            update={
                "name": name,
                "measured_on": measured_on,
                **{
                    cost: max(getattr(profile, cost), getattr(known, cost))
                    for cost in ("sojourn_seconds", "processing_cpu", "moving_cpu", "memory_mb")
                },
            }
        )
    return list(named.values())
