"""Plans simulated as a cluster runs them: every operator on the slots its plan names, predicted beside simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cluster.topology import CPU_POINTS_PER_SLOT, MEMORY
from penstock.dataflow.pipeline import gains
from penstock.engines.simulated.preparation import Mode, PlannedJob, SimulationOptions, shared_cluster, switch_of
from penstock.planning.plan import finite
from penstock.planning.prediction.placed import placed_setup
from penstock.planning.prediction.placement import (
    LatencyAssumptions,
    SlotUsage,
    latency_ms,
    slot_usage,
    supported_rate_as_declared,
)
from penstock.report.simulated_result import (
    PipelineResult,
    SimulatedResult,
)
from penstock.simulation.engine import simulate_scenario
from penstock.simulation.from_plan import placed_pipeline
from penstock.simulation.outcome import report_of
from penstock.simulation.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.cluster.topology import Cluster, Slot
    from penstock.planning.prediction.forecast import RunForecast
    from penstock.simulation.outcome import PipelineOutcome, SimulationOutcome

NEARLY_BUSY = 0.9
"""A station that is at work less of the time does not limit anything for long."""


def scenario_of(
    jobs: Sequence[PlannedJob],
    others: Sequence[tuple[PlannedJob, float]],
    cluster: Cluster | str | Path | None,
    options: SimulationOptions,
    *,
    drain: bool,
    pause_seconds: float,
) -> Scenario:
    """`others` are plans to switch to, and when."""
    nodes = shared_cluster([*jobs, *(other for other, _ in others)], cluster)
    return Scenario(
        cluster=nodes,
        pipelines=tuple(
            placed_pipeline(
                job.pipeline, job.threads, job.demands, nodes, job.saved.rate, load=job.load, options=options.options
            )
            for job in jobs
        ),
        seconds=options.seconds,
        warm_up=options.warm_up,
        seed=options.seed,
        network=options.network,
        batch_interval_ms=options.batch_interval_ms,
        contention=options.contention,
        outages=options.outages,
        switches=tuple(
            replace(switch_of(other, at, jobs, nodes, options.options), drain=drain, pause_seconds=pause_seconds)
            for other, at in others
        ),
    )


def simulate_placed(jobs: Sequence[PlannedJob], scenario: Scenario, options: SimulationOptions) -> SimulatedResult:
    outcome = simulate_scenario(scenario, options.tell_part)
    pipelines = tuple(_pipeline_result(job, outcome, scenario) for job in jobs)
    times = outcome.pipelines[jobs[0].pipeline.name].timeline.seconds
    degrees = zip(times.tolist(), outcome.fairness.tolist(), strict=True) if len(jobs) > 1 else ()
    return SimulatedResult(
        pipelines=pipelines,
        seconds=scenario.seconds,
        warm_up=scenario.warm_up,
        seed=scenario.seed,
        engine=outcome.engine,
        nodes={name: (use.cpu, use.memory_mb) for name, use in outcome.nodes.items()},
        fairness=tuple(degrees),
        notes=outcome.notes,
        outcome=outcome,
    )


def _pipeline_result(job: PlannedJob, outcome: SimulationOutcome, scenario: Scenario) -> PipelineResult:
    name = job.pipeline.name
    seen = outcome.pipelines[name]
    report = report_of(outcome, name)
    gain_of = gains(job.pipeline)
    most = supported_rate_as_declared(job.pipeline, gain_of, job.demands, job.threads)
    network = scenario.network
    expected = latency_ms(
        job.pipeline,
        gain_of,
        job.demands,
        job.threads,
        scenario.cluster,
        report.offered_rate,
        job.routing,
        LatencyAssumptions(
            scenario.batch_interval_ms or 0.0, network.same_node_ms, network.same_rack_ms, network.other_rack_ms
        ),
    )
    return PipelineResult(
        pipeline=name,
        mode=str(Mode.PLACED),
        load=job.load,
        report=report,
        predicted_rate=finite(most.rate),
        predicted_bottleneck=most.bottleneck,
        predicted_latency_ms={part: finite(value) for part, value in expected.items()},
        predicted_slots=_predicted_slots(job, scenario.cluster, report.sustained_rate),
        bottleneck=_limit(seen, scenario),
        latencies=seen.latency.sample,
        overload_shows_most=_holds_sources(scenario, name),
        shares_slots=len(scenario.pipelines) > 1,
        forecast=_forecast(job, scenario.cluster, report.offered_rate),
    )


def _forecast(job: PlannedJob, cluster: Cluster, rate: float) -> RunForecast:
    """Return the prediction of a placed run, the cost of its own processes included."""
    return placed_setup(job.pipeline, job.demands, job.threads, cluster, job.routing).forecast(rate)


def _limit(seen: PipelineOutcome, scenario: Scenario) -> str | None:
    """What limits a pipeline that is not stable, in words. Where nothing is always at work, that is not a station."""
    if seen.stable or seen.busiest is None:
        return None
    if seen.busiest.utilisation >= NEARLY_BUSY:
        return str(seen.busiest)
    loop = next((simulated.in_flight for simulated in scenario.pipelines if simulated.name == seen.name), None)
    if loop is not None:
        return f"the loop of {loop:,} tuples in flight (the busiest station is {seen.busiest})"
    if scenario.outages or scenario.switches:
        return f"the time it stood still (the busiest station is {seen.busiest})"
    return str(seen.busiest)


def _holds_sources(scenario: Scenario, name: str) -> bool:
    return any(
        simulated.in_flight or simulated.queue_limit for simulated in scenario.pipelines if simulated.name == name
    )


def _predicted_slots(job: PlannedJob, cluster: Cluster, rate: float) -> dict[Slot, tuple[float, float]]:
    """As a plan predicts them, at another rate. Declared demands are for the planned rate, whatever flows."""
    memory = {node.name: node.capacity[MEMORY] / node.slots for node in cluster.nodes}
    declared = {
        name: SlotUsage((operator.cpu or 0.0) / CPU_POINTS_PER_SLOT, 0.0)
        for name, operator in job.pipeline.operators.items()
    }
    used = slot_usage(gains(job.pipeline), job.demands, declared, job.threads, rate, job.routing)
    predicted = {}
    for slot, usage in used.items():
        own = sum(
            (job.pipeline.operators[name].memory_mb or 0.0) * count
            for name, count in job.threads[slot].items()
            if job.demands[name] is None
        )
        predicted[slot] = (usage.cpu, usage.memory * memory[slot.node] + own)
    return predicted
