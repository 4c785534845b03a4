"""`penstock.simulate(...)`: execute plans in simulated time; predicted beside simulated and measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, nearest
from penstock.base.text import one_of
from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import gains
from penstock.engines.rate_search import search
from penstock.engines.simulated.fused import setup_of, simulate_job_fused
from penstock.engines.simulated.placed import scenario_of, simulate_placed
from penstock.engines.simulated.preparation import (
    LoadLike,
    Mode,
    PlannedJob,
    SimulationOptions,
    parse_network,
    parse_outage,
    parse_switch,
    planned_job,
    positive,
)
from penstock.planning.files import SavedPlan
from penstock.planning.plan import Plan
from penstock.planning.prediction.placement import supported_rate_as_declared
from penstock.report.listener import Listener
from penstock.report.result import relative_error
from penstock.report.simulated_result import (
    SAME_LOAD,
    Measured,
    SimulatedResult,
    read_measured,
)
from penstock.runs.config import default_warm_up
from penstock.simulation.from_plan import Options
from penstock.simulation.scenario import Arrivals, Network, Outage, Service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.topology import Cluster
    from penstock.inputs.finders import ModelsLike, PlanLike
    from penstock.planning.prediction.placement import Routing


DEFAULT_SECONDS = 60.0


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
    models: ModelsLike = None,
    cluster: Cluster | str | Path | None = None,
    mode: Mode | str = Mode.PLACED,
    slots: int | None = None,
    cores: int | None = None,
    batch_overhead_ms: float | None = None,
    find_max: bool = False,
    measured: Measured | str | Path | Sequence[Measured | str | Path] = (),
    listener: Listener | None = None,
) -> SimulatedResult:
    """Execute plans in simulated time: one, or several that share the nodes they name alike.

    `load` is tuples/s, or what `penstock.dataflow.load.parse_load` reads, for all plans or for each; a plan has its own
    rate. `find_max` looks for the highest stable rate of one plan. `switches` are (plan, seconds): from then on the
    pipeline runs on that plan. `measured` are results of runs on Spark (files of `penstock run --json`) to stand beside
    what is simulated. `slots`, `cores` and `batch_overhead_ms` are for `mode="fused"`.
    """
    listener = listener or Listener()
    plans = [plan] if isinstance(plan, Plan | SavedPlan | str | Path) else list(plan)
    engine = one_of(Mode, mode, "mode")
    options = SimulationOptions(
        seconds=positive(seconds, "seconds"),
        warm_up=default_warm_up(seconds) if warm_up is None else warm_up,
        seed=seed,
        options=Options(
            arrivals=one_of(Arrivals, arrivals, "arrivals"),
            service=one_of(Service, service, "service"),
            skew=skew,
            in_flight=in_flight,
            queue_limit=queue_limit,
            replay_seconds=replay_seconds,
            every_station_batched=True,
        ),
        network=parse_network(network) if isinstance(network, str) else network or Network(),
        batch_interval_ms=batch_interval_ms,
        contention=contention,
        outages=tuple(parse_outage(outage) if isinstance(outage, str) else outage for outage in outages),
        listener=listener,
    )
    if not 0 <= options.warm_up < seconds:
        raise BadInputError(f"warm_up=: expected at least 0 and less than the {seconds:g} s, found {options.warm_up:g}")
    if find_max and (load is not None or len(plans) != 1):
        raise BadInputError("find_max= looks for the rate of one plan itself; give one plan and no load=")
    jobs = [
        planned_job(planned, offered, models, routing)
        for planned, offered in zip(plans, _loads(load, len(plans)), strict=True)
    ]
    if not jobs:
        raise BadInputError("simulate: expected at least one plan")
    seen = _measured(measured, jobs, engine)
    if engine is Mode.FUSED:
        _refuse_for_fused(
            {
                "several plans": len(jobs) > 1,
                "routing=": routing,
                "queue_limit=": queue_limit,
                "in_flight=": in_flight,
                "skew=": skew,
                "network=": network,
                "outages=": outages,
                "switches=": switches,
                "replay_seconds=": replay_seconds,
                "service=": options.options.service is not Service.CONSTANT,
                "cluster=": cluster,
            }
        )
        setup = setup_of(jobs[0], slots, cores, batch_overhead_ms, options.batch_interval_ms)
        most = setup.rate()

        def offer(load: Load) -> SimulatedResult:
            return simulate_job_fused(replace(jobs[0], load=load), setup, options)
    else:
        _refuse_for_placed({"slots=": slots, "cores=": cores, "batch_overhead_ms=": batch_overhead_ms})
        others = [
            (planned_job(other_plan, None, models, routing), at)
            for other_plan, at in (parse_switch(switch) if isinstance(switch, str) else switch for switch in switches)
        ]
        scenario = scenario_of(jobs, others, cluster, options, drain=drain, pause_seconds=pause_seconds)
        job = jobs[0]
        most = supported_rate_as_declared(job.pipeline, gains(job.pipeline), job.demands, job.threads).rate

        def offer(load: Load) -> SimulatedResult:
            if not find_max:
                return simulate_placed(jobs, scenario, options)
            under = tuple(replace(pipeline, load=load) for pipeline in scenario.pipelines)
            return simulate_placed([replace(job, load=load)], replace(scenario, pipelines=under), options)

    result = search(jobs[0].where, most, offer, listener.on_message) if find_max else offer(jobs[0].load)
    return _with_measured(result, seen)


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
    runs: dict[str, Measured] = {}
    for result in several:
        run = result if isinstance(result, Measured) else read_measured(Path(result))
        if run.pipeline not in names:
            known = nearest(run.pipeline, names)
            raise BadInputError(f"measured: a run of '{run.pipeline}', which is not simulated; {known}")
        if run.mode != mode:
            raise BadInputError(f"measured: '{run.pipeline}' was run {run.mode}; simulate it so: mode='{run.mode}'")
        runs[run.pipeline] = run
    return runs


def _with_measured(result: SimulatedResult, measured: dict[str, Measured]) -> SimulatedResult:
    notes = []
    for pipeline in result.pipelines:
        run = measured.get(pipeline.pipeline)
        apart = None if run is None else relative_error(pipeline.report.offered_rate, run.offered_rate)
        if run is not None and apart is not None and abs(apart) > SAME_LOAD and pipeline.highest_rate is None:
            notes.append(
                f"'{pipeline.pipeline}' was offered {run.offered_rate:,.4g} tuples/s when it was measured, and "
                f"{pipeline.report.offered_rate:,.4g} here: give the same load"
            )
    return replace(
        result,
        pipelines=tuple(replace(pipeline, measured=measured.get(pipeline.pipeline)) for pipeline in result.pipelines),
        notes=(*result.notes, *notes),
    )


def _refuse_for_fused(given: dict[str, object]) -> None:
    if named := [option for option, value in given.items() if value]:
        raise BadInputError(f"{', '.join(named)}: not for mode='fused', where a pipeline is one query on one machine")


def _refuse_for_placed(given: dict[str, object]) -> None:
    if named := [option for option, value in given.items() if value is not None]:
        raise BadInputError(f"{', '.join(named)}: only for mode='fused'; a plan has its own slots")
