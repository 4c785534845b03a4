"""`penstock.simulate(...)`: plans executed in simulated time, predicted beside simulated (and measured)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import api
from penstock.cluster.resources import CPU_POINTS_PER_SLOT, MEMORY
from penstock.dataflow.load import Load
from penstock.dataflow.rates import gains
from penstock.errors import BadInputError, nearest
from penstock.planning.file import SavedPlan
from penstock.planning.plan import Plan, finite
from penstock.prediction.groupings import supported_rate_as_declared
from penstock.prediction.latency import LatencyAssumptions, latency_ms
from penstock.prediction.usage import Usage, slot_usage
from penstock.report.simulated_result import (
    SAME_LOAD,
    Measured,
    PipelineResult,
    SimulatedResult,
    error_of,
    read_measured,
)
from penstock.simulated_fused import setup_of, simulate_job_fused
from penstock.simulated_job import (
    LoadLike,
    Mode,
    PlanLike,
    PlannedJob,
    Wishes,
    parse_network,
    parse_outage,
    parse_switch,
    planned_job,
    positive,
    shared_cluster,
    switch_of,
)
from penstock.simulated_search import search
from penstock.simulation.engine import simulate_scenario
from penstock.simulation.from_plan import Options, placed_pipeline
from penstock.simulation.reporting import report_of
from penstock.simulation.system import Arrivals, Network, Outage, Scenario, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cluster.topology import Cluster, Slot
    from penstock.prediction.rate import Routing
    from penstock.simulation.outcome import Outcome, PipelineOutcome

DEFAULT_SECONDS = 60.0
NEARLY_BUSY = 0.9
"""A station that is at work less of the time does not limit anything for long."""
WARM_UP_PART = 1 / 6
"""Of the time simulated, where no warm-up is given."""


def simulate(
    plan: PlanLike | Sequence[PlanLike],
    load: LoadLike | Sequence[LoadLike] = None,
    *,
    seconds: float = DEFAULT_SECONDS,
    warm_up: float | None = None,
    seed: int = 0,
    arrivals: Arrivals | str = Arrivals.CONSTANT,
    service: Service | str = Service.CONSTANT,
    routing: Routing | str | None = None,
    queue_limit: int | None = None,
    in_flight: int | None = None,
    skew: float = 0.0,
    batch_interval_ms: float | None = None,
    network: Network | str | None = None,
    contention: bool = True,
    outages: Sequence[Outage | str] = (),
    replay_seconds: float | None = None,
    switches: Sequence[tuple[PlanLike, float] | str] = (),
    drain: bool = True,
    pause_seconds: float = 0.0,
    models: api.ModelsLike = None,
    cluster: Cluster | str | Path | None = None,
    mode: Mode | str = Mode.PLACED,
    slots: int | None = None,
    cores: int | None = None,
    batch_overhead_ms: float | None = None,
    find_max: bool = False,
    measured: Measured | str | Path | Sequence[Measured | str | Path] = (),
    progress: Callable[[float], None] | None = None,
    tell: Callable[[str], None] = lambda _text: None,
) -> SimulatedResult:
    """Execute plans in simulated time: one, or several that share the nodes they name alike.

    `load` is tuples/s, or what `penstock.dataflow.load.parse_load` reads, for all plans or for each; a plan has its own
    rate. `find_max` looks for the highest stable rate of one plan. `switches` are (plan, seconds): from then on the
    pipeline runs on that plan. `measured` are results of runs on Spark (files of `penstock run --json`) to stand beside
    what is simulated. `slots`, `cores` and `batch_overhead_ms` are for `mode="fused"`. `progress` hears the part that
    is done, `tell` what a search found.
    """
    plans = [plan] if isinstance(plan, Plan | SavedPlan | str | Path) else list(plan)
    way = api.one_of(Mode, mode, "mode")
    wishes = Wishes(
        seconds=positive(seconds, "seconds"),
        warm_up=seconds * WARM_UP_PART if warm_up is None else warm_up,
        seed=seed,
        options=Options(
            arrivals=api.one_of(Arrivals, arrivals, "arrivals"),
            service=api.one_of(Service, service, "service"),
            skew=skew,
            in_flight=in_flight,
            queue_limit=queue_limit,
            replay_seconds=replay_seconds,
            every_station_batched=True,
        ),
        network=parse_network(network) if isinstance(network, str) else network or Network(),
        batch_interval_ms=batch_interval_ms,
        contention=contention,
        outages=tuple(parse_outage(one) if isinstance(one, str) else one for one in outages),
        progress=progress,
    )
    if not 0 <= wishes.warm_up < seconds:
        raise BadInputError(f"warm-up: expected at least 0 and less than the {seconds:g} s, found {wishes.warm_up:g}")
    if find_max and (load is not None or len(plans) != 1):
        raise BadInputError("--find-max looks for the rate of one plan itself; give one plan and no --load")
    library = api.models(models)
    jobs = [
        planned_job(one, offered, library, routing)
        for one, offered in zip(plans, _loads(load, len(plans)), strict=True)
    ]
    if not jobs:
        raise BadInputError("simulate: expected at least one plan")
    seen = _measured(measured, jobs, way)
    if way is Mode.FUSED:
        _refuse_for_fused(
            {
                "several plans": len(jobs) > 1,
                "--routing": routing,
                "--queue": queue_limit,
                "--in-flight": in_flight,
                "--skew": skew,
                "--network": network,
                "--fail": outages,
                "--switch": switches,
                "--replay": replay_seconds,
                "--service": wishes.options.service is not Service.CONSTANT,
                "--cluster": cluster,
            }
        )
        setup = setup_of(jobs[0], slots, cores, batch_overhead_ms)
        most = setup.rate()

        def offer(load: Load) -> SimulatedResult:
            return simulate_job_fused(replace(jobs[0], load=load), setup, wishes)
    else:
        _refuse_for_placed({"--slots": slots, "--cores": cores, "--batch-overhead": batch_overhead_ms})
        others = [
            (planned_job(one, None, library, routing), at)
            for one, at in (parse_switch(one) if isinstance(one, str) else one for one in switches)
        ]
        scenario = _scenario(jobs, others, cluster, wishes, drain=drain, pause_seconds=pause_seconds)
        job = jobs[0]
        most = supported_rate_as_declared(job.pipeline, gains(job.pipeline), job.demands, job.threads).rate

        def offer(load: Load) -> SimulatedResult:
            if not find_max:
                return _result(jobs, scenario, wishes)
            under = tuple(replace(one, load=load) for one in scenario.pipelines)
            return _result([replace(job, load=load)], replace(scenario, pipelines=under), wishes)

    result = search(jobs[0].where, most, offer, tell) if find_max else offer(jobs[0].load)
    return _with_measured(result, seen)


def _scenario(
    jobs: Sequence[PlannedJob],
    others: Sequence[tuple[PlannedJob, float]],
    cluster: Cluster | str | Path | None,
    wishes: Wishes,
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
                job.pipeline, job.threads, job.demands, nodes, job.saved.rate, load=job.load, options=wishes.options
            )
            for job in jobs
        ),
        seconds=wishes.seconds,
        warm_up=wishes.warm_up,
        seed=wishes.seed,
        network=wishes.network,
        batch_interval_ms=wishes.batch_interval_ms,
        contention=wishes.contention,
        outages=wishes.outages,
        switches=tuple(
            replace(switch_of(other, at, jobs, nodes, wishes.options), drain=drain, pause_seconds=pause_seconds)
            for other, at in others
        ),
    )


def _result(jobs: Sequence[PlannedJob], scenario: Scenario, wishes: Wishes) -> SimulatedResult:
    outcome = simulate_scenario(scenario, wishes.progress)
    found = tuple(_pipeline_result(job, outcome, scenario) for job in jobs)
    times = outcome.pipelines[jobs[0].pipeline.name].timeline.seconds
    degrees = zip(times.tolist(), outcome.fairness.tolist(), strict=True) if len(jobs) > 1 else ()
    return SimulatedResult(
        pipelines=found,
        seconds=scenario.seconds,
        warm_up=scenario.warm_up,
        seed=scenario.seed,
        engine=outcome.engine,
        nodes={name: (use.cpu, use.memory_mb) for name, use in outcome.nodes.items()},
        fairness=tuple(degrees),
        notes=outcome.notes,
        outcome=outcome,
    )


def _pipeline_result(job: PlannedJob, outcome: Outcome, scenario: Scenario) -> PipelineResult:
    name = job.pipeline.name
    seen = outcome.pipelines[name]
    report = report_of(outcome, name)
    found = gains(job.pipeline)
    most = supported_rate_as_declared(job.pipeline, found, job.demands, job.threads)
    network = scenario.network
    expected = latency_ms(
        job.pipeline,
        found,
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
    )


def _limit(seen: PipelineOutcome, scenario: Scenario) -> str | None:
    """What limits a pipeline that is not stable, in words. Where nothing is always at work, that is not a station."""
    if seen.stable or seen.busiest is None:
        return None
    if seen.busiest.utilisation >= NEARLY_BUSY:
        return str(seen.busiest)
    loop = next((one.in_flight for one in scenario.pipelines if one.name == seen.name), None)
    if loop is not None:
        return f"the loop of {loop:,} tuples in flight (the busiest station is {seen.busiest})"
    if scenario.outages or scenario.switches:
        return f"the time it stood still (the busiest station is {seen.busiest})"
    return str(seen.busiest)


def _holds_sources(scenario: Scenario, name: str) -> bool:
    return any(one.in_flight or one.queue_limit for one in scenario.pipelines if one.name == name)


def _predicted_slots(job: PlannedJob, cluster: Cluster, rate: float) -> dict[Slot, tuple[float, float]]:
    """As a plan predicts them, at another rate. Declared demands are for the planned rate, whatever flows."""
    memory = {node.name: node.capacity[MEMORY] / node.slots for node in cluster.nodes}
    declared = {
        name: Usage((one.cpu or 0.0) / CPU_POINTS_PER_SLOT, 0.0) for name, one in job.pipeline.operators.items()
    }
    used = slot_usage(gains(job.pipeline), job.demands, declared, job.threads, rate, job.routing)
    found = {}
    for slot, one in used.items():
        own = sum(
            (job.pipeline.operators[name].memory_mb or 0.0) * count
            for name, count in job.threads[slot].items()
            if job.demands[name] is None
        )
        found[slot] = (one.cpu, one.memory * memory[slot.node] + own)
    return found


def _loads(load: LoadLike | Sequence[LoadLike], plans: int) -> list[LoadLike]:
    if load is None or isinstance(load, Load | float | int | str):
        return [load] * plans
    loads = list(load)
    if len(loads) == 1:
        return loads * plans
    if len(loads) != plans:
        raise BadInputError(f"load: expected one for all plans or one for each of the {plans}, found {len(loads)}")
    return loads


def _measured(
    given: Measured | str | Path | Sequence[Measured | str | Path], jobs: Sequence[PlannedJob], mode: Mode
) -> dict[str, Measured]:
    several = [given] if isinstance(given, Measured | str | Path) else given
    names = [job.pipeline.name for job in jobs]
    found: dict[str, Measured] = {}
    for one in several:
        seen = one if isinstance(one, Measured) else read_measured(Path(one))
        if seen.pipeline not in names:
            known = nearest(seen.pipeline, names)
            raise BadInputError(f"measured: a run of '{seen.pipeline}', which is not simulated; {known}")
        if seen.mode != mode:
            raise BadInputError(f"measured: '{seen.pipeline}' was run {seen.mode}; simulate it so: --mode {seen.mode}")
        found[seen.pipeline] = seen
    return found


def _with_measured(result: SimulatedResult, measured: dict[str, Measured]) -> SimulatedResult:
    notes = []
    for one in result.pipelines:
        seen = measured.get(one.pipeline)
        apart = None if seen is None else error_of(one.report.offered_rate, seen.offered_rate)
        if seen is not None and apart is not None and abs(apart) > SAME_LOAD and one.highest_rate is None:
            notes.append(
                f"'{one.pipeline}' was offered {seen.offered_rate:,.4g} tuples/s when it was measured, and "
                f"{one.report.offered_rate:,.4g} here: give the same --load"
            )
    return replace(
        result,
        pipelines=tuple(replace(one, measured=measured.get(one.pipeline)) for one in result.pipelines),
        notes=(*result.notes, *notes),
    )


def _refuse_for_fused(given: dict[str, object]) -> None:
    if named := [option for option, value in given.items() if value]:
        raise BadInputError(f"{', '.join(named)}: not for --mode fused, where a pipeline is one query on one machine")


def _refuse_for_placed(given: dict[str, object]) -> None:
    if named := [option for option, value in given.items() if value is not None]:
        raise BadInputError(f"{', '.join(named)}: only for --mode fused; a plan has its own slots")
