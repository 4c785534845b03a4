"""A plan run on a cluster from here: in the foreground, as an object that lives, or again and again for a rate."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import stamp
from penstock.base.errors import BadInputError
from penstock.cluster.contract import AppRequest, Purpose
from penstock.dataflow.load import Load
from penstock.engines.placed.application import PlacedApplication
from penstock.engines.placed.preparation import PlacedJob, check_nodes
from penstock.engines.run_index import note_elsewhere
from penstock.inputs.finders import logic_of
from penstock.modelling.fit import doubts_about
from penstock.modelling.machine import this_machine
from penstock.report.result import TriedRate
from penstock.runs.config import RunConfig
from penstock.runs.environment import cluster_of, services_of
from penstock.spark.internals.settings import daemon_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engines.placed.handle import PlacedHandle
    from penstock.engines.placed.run_control import RunControl
    from penstock.report.listener import Listener
    from penstock.report.report import Report
    from penstock.report.result import PlacedResult

PATIENCE_SECONDS = 180.0
OVERLOAD = 2.0
"""Times what the plan's slots support: more than can be done."""

_SETTINGS = {
    # the conductor decides what happens to a bundle that failed, and where
    "spark.task.maxFailures": "1",
    **daemon_settings("penstock.engines.placed.bundle.worker_daemon"),
}


def start_placed(
    job: PlacedJob,
    place: str | Path,
    listener: Listener,
    *,
    going_on: bool = False,
    onto: Path | None = None,
    keep_executors: bool = True,
) -> PlacedHandle:
    """As `conducted`, but returns at once with a handle; what is wrong with the run is raised by its `await_end`."""
    from penstock.engines.placed.handle import PlacedHandle  # noqa: PLC0415 - psutil belongs to the extra

    def conduct(control: RunControl) -> PlacedResult:
        return conducted(
            job, place, listener, going_on=going_on, onto=onto, keep_executors=keep_executors, control=control
        )

    return PlacedHandle(place, conduct)


def conducted(
    job: PlacedJob,
    place: str | Path,
    listener: Listener,
    *,
    going_on: bool = False,
    onto: Path | None = None,
    keep_executors: bool = True,
    control: RunControl | None = None,
) -> PlacedResult:
    """The whole of a run: services, session, bundles, and their end. `going_on`: with the run that is in the folder;
    `onto`: another plan it changes to as soon as it flows."""
    from penstock.engines.placed.run_control import RunControl  # noqa: PLC0415 - Spark loads only when it is used
    from penstock.engines.placed.run_folder import is_url  # noqa: PLC0415

    config, manager = job.config, cluster_of(job.config)
    known = manager.topology() if manager.pins else None
    if known is not None:
        check_nodes(job, known)
    for warning in doubts_about(job.pipeline, job.demands, here=this_machine(), code=logic_of(job.pipeline)):
        listener.on_message(warning)
    application = PlacedApplication(
        job, place, manager, control or RunControl(), listener, keep_executors=keep_executors
    )
    with application.taken(going_on=going_on) as commit, services_of(job.pipeline, listener) as environment:
        if not is_url(application.folder.place):
            note_elsewhere(application.folder.path)
        application.find_slots(going_on=going_on)
        if config.session is not None:
            return application.run(config.session, commit, environment, onto)
        settings = {**_SETTINGS, **_packages(config), **config.settings}
        with manager.session(AppRequest(job.pipeline.name, Purpose.PLACED, settings=settings)) as app:
            return application.run(app.spark, commit, environment, onto)


def _packages(config: RunConfig) -> dict[str, str]:
    return {"spark.jars.packages": ",".join(config.packages)} if config.packages else {}


@contextmanager
def placed_session(name: str, config: RunConfig | None = None) -> Iterator[Any]:
    """A session that several placed runs, one after the other, use: they find its executors warm."""
    manager = cluster_of(config or RunConfig())
    with manager.session(AppRequest(name, Purpose.PLACED, settings=_SETTINGS)) as app:
        yield app.spark


def searched(job: PlacedJob, place: str | Path, listener: Listener) -> PlacedResult:
    """Run trials with other loads until the highest stable rate is known, on executors they share; the result is that
    of the best of them."""
    with placed_session(job.pipeline.name, job.config) as session:
        return _searched(replace(job, config=replace(job.config, session=session)), place, listener)


def _searched(job: PlacedJob, place: str | Path, listener: Listener) -> PlacedResult:
    from penstock.engines.rate_search import MORE_THAN_ANY, find_highest_rate  # noqa: PLC0415 - Spark loads only when it is used

    results: list[PlacedResult] = []
    too_much = OVERLOAD * (job.slots_rate() or 0.0)
    low, high = job.config.low, job.config.high
    if high is None and not too_much:
        raise BadInputError("find_max=: the plan predicts no rate to start from; give high=")

    def offer(rate: float) -> Report:
        load = Load.constant(too_much if rate == MORE_THAN_ANY else rate)
        listener.on_message(f"trial {len(results) + 1}: offering {load.mean_rate:,.4g} tuples/s")
        results.append(conducted(replace(job, load=load), f"{place}/trial-{len(results) + 1}", listener))
        return results[-1].report

    searched = find_highest_rate(offer, lambda: bool(results) and results[-1].interrupted, low, high)
    shown = searched.trials.index(searched.best) if searched.best else -1
    tried = tuple(
        TriedRate(trial.rate, trial.stable, trial.report.sustained_rate, trial.saturated) for trial in searched.trials
    )
    return replace(
        results[shown],
        searched=True,
        highest_rate=searched.best.rate if searched.best else None,
        tried=tried,
        interrupted=results[-1].interrupted,
    )


def fresh_folder(pipeline: str) -> Path:
    """Beside the working directory's other files: runs/NAME-TIME."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in pipeline)
    return Path("runs") / f"{safe}-{stamp()}"
