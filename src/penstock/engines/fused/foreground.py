"""Waiting for a run to end, in the foreground: Ctrl-C and SIGTERM drain it."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, PenstockError
from penstock.dataflow.load import Load
from penstock.dataflow.rates import checked_rate
from penstock.engines.fused.launcher import FusedOptions, spec_of
from penstock.engines.fused.preparation import FusedJob, batch_hearer
from penstock.report.result import RunResult, TriedRate
from penstock.runs.environment import SparkOptions, services_of, spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.engines.rate_search import RateTrial
    from penstock.report.listener import Listener
    from penstock.report.report import Report
    from penstock.runs.handle import RunHandle

SEARCH_SECONDS = 20.0
LOOK_SECONDS = 0.2


class Interrupted:
    """Whether somebody asked for the end; asked twice, it ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interrupted() -> Iterator[Interrupted]:
    """Inside the block Ctrl-C and SIGTERM only say so. Only the main thread hears of signals; elsewhere nothing
    changes."""
    signalled = Interrupted()
    if threading.current_thread() is not threading.main_thread():
        yield signalled
        return

    def handle(_number: int, _frame: Any) -> None:
        signalled.ask()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def await_with_interrupts(handle: RunHandle) -> RunResult:
    with interrupted() as signalled:
        try:
            while (result := handle.await_end(LOOK_SECONDS)) is None:
                if signalled.asked:
                    return replace(handle.drain(), interrupted=True)
        except KeyboardInterrupt:
            with suppress(PenstockError):  # its log has why it failed as well; what counts is that it was to end
                handle.stop()
            raise
    return result


def check_search(low: float | None, high: float | None, rate: object, *, search: bool) -> None:
    if not search:
        if low is not None or high is not None:
            raise BadInputError("low= and high= mean something only with find_max=")
        return
    if rate is not None:
        raise BadInputError("find_max= looks for the rate itself; leave out rate=")
    for name, value in (("low=", low), ("high=", high)):
        if value is not None:
            checked_rate(value, name)
    if low is not None and high is not None and low >= high:
        raise BadInputError(f"low=: expected less than high=, found {low:g} and {high:g}")


def search_highest(
    job: FusedJob,
    options: FusedOptions,
    spark: SparkOptions,
    low: float | None,
    high: float | None,
    listener: Listener,
    scratch: Path,
) -> RunResult:
    """The highest rate that is stable, by running one after the other in one session."""
    from penstock.engines.fused.run import FusedRun, Hooks  # noqa: PLC0415
    from penstock.engines.rate_search import MORE_THAN_ANY, find_highest_rate  # noqa: PLC0415 - loads Spark
    from penstock.spark.internals.settings import PARTITIONS  # noqa: PLC0415

    def tried(trial: RateTrial) -> None:
        verdict = "saturated" if trial.saturated else "stable" if trial.stable else "falls behind"
        listener.on_message(f"{trial.rate:,.4g} tuples/s: {verdict}")

    with (
        services_of(job.pipeline, listener) as environment,
        spark_session(
            spark.on_slots_of(job.slot_memory_mb),
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
            spec = spec_of(job, options, f"trial-{number}", scratch / f"trial-{number}")
            hear, _ = batch_hearer(listener, load, options.seconds)
            spec = replace(spec, load=load, environment=environment)
            run = FusedRun(started.session, spec, options.seconds, options.warm_up, Hooks(hear, listener.on_tuple))
            run.start()
            return replace(_awaited(run, lambda: signalled.asked), most_dead=options.most_dead)

        listener.on_message("looking for the highest stable rate")
        searched = find_highest_rate(offer, lambda: signalled.asked, low, high, tried)
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
            run.drain()
    ended: Report = report
    return ended
