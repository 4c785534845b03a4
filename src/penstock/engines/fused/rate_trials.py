"""The highest stable rate of a fused pipeline, by runs one after the other in one session."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.dataflow.load import Load
from penstock.engines.fused.preparation import FusedJob, batch_hearer, spec_of
from penstock.report.result import RunResult, TriedRate
from penstock.runs.environment import services_of, spark_session, with_executor_memory
from penstock.runs.foreground import LOOK_SECONDS, interrupted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.engines.rate_search import RateTrial
    from penstock.report.listener import Listener
    from penstock.report.report import Report


def search_highest(job: FusedJob, listener: Listener, scratch: Path) -> RunResult:
    """Search for the highest stable rate with runs one after the other in one session."""
    from penstock.engines.fused.run import FusedRun, Hooks  # noqa: PLC0415
    from penstock.engines.rate_search import MORE_THAN_ANY, find_highest_rate  # noqa: PLC0415 - loads Spark
    from penstock.spark.internals.settings import PARTITIONS  # noqa: PLC0415

    config = job.config

    def tried(trial: RateTrial) -> None:
        verdict = "saturated" if trial.saturated else "stable" if trial.stable else "falls behind"
        listener.on_message(f"{trial.rate:,.4g} tuples/s: {verdict}")

    with (
        services_of(job.pipeline, listener) as environment,
        spark_session(
            with_executor_memory(config, job.slot_memory_mb),
            job.slots,
            scratch / "java.log",
            f"penstock-{job.pipeline.name}",
            listener,
        ) as started,
        interrupted() as signalled,
    ):
        if job.setup is not None and job.setup.sparks_own:
            partitions = int(started.session.conf.get(PARTITIONS))
            job = replace(job, setup=replace(job.setup, partitions=partitions))

        def offer(rate: float) -> Report:
            what = "more than can be done" if rate == MORE_THAN_ANY else f"{rate:,.4g} tuples/s"
            listener.on_message(f"now offering {what}")
            load = Load.constant(rate)
            number = len(list(scratch.iterdir()))
            is_kept = config.folder is not None
            spec = spec_of(job, config, f"trial-{number}", scratch / f"trial-{number}", is_kept=is_kept)
            hear, _ = batch_hearer(listener, load, config.run_seconds)
            spec = replace(spec, load=load, environment=environment)
            run = FusedRun(started.session, spec, Hooks(hear, listener.on_tuple))
            run.start()
            report = _awaited(run, lambda: signalled.asked)
            return replace(report, max_dead_letter_ratio=config.max_dead_letter_ratio)

        listener.on_message("looking for the highest stable rate")
        searched = find_highest_rate(offer, lambda: signalled.asked, config.low, config.high, tried)
        shown = searched.best or searched.trials[-1]
        return job.result(
            shown.report,
            Load.constant(shown.report.offered_rate),
            interrupted=signalled.asked,
            searched=True,
            highest_rate=searched.best.rate if searched.best else None,
            tried=tuple(TriedRate(t.rate, t.stable, t.report.sustained_rate, t.saturated) for t in searched.trials),
        )


def _awaited(run: Any, asked: Callable[[], bool]) -> Report:
    while (report := run.await_end(LOOK_SECONDS)) is None:
        if asked():
            run.stop()
    ended: Report = report
    return ended
