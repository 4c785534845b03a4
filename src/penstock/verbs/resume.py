"""`penstock.resume(...)`: a run goes on, where it was or onto another plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch
from penstock.connectors.log.address import absolute_place
from penstock.dataflow.load import Load
from penstock.jobs.conducting import await_with_interrupts
from penstock.jobs.placed import prepare_placed
from penstock.jobs.placed_run import PATIENCE_SECONDS, RunOptions, conducted
from penstock.jobs.resuming import resume_fused, where_it_was_started
from penstock.jobs.runs import is_fused, placed_or_found
from penstock.modelling.library import ModelLibrary
from penstock.report.listener import Listener
from penstock.verbs.run import spark_options, warm_up_of

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline
    from penstock.jobs.find import ModelsLike
    from penstock.report.placed_result import PlacedResult
    from penstock.report.result import RunResult


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that goes on. `seconds`: until it did, its first tuple at its end where it had waited."""

    seconds: float
    result: PlacedResult | RunResult | None
    """Of a run that was conducted from here; None: another process conducts it."""


def resume(
    folder: str | Path,
    plan: str | Path | None = None,
    *,
    master: str | None = None,
    secret_file: str | Path | None = None,
    slots: int | None = None,
    seconds: float | None = None,
    warm_up: float | None = None,
    models: ModelsLike = None,
    given: Pipeline | None = None,
    dead_letters: str | Path | None = None,
    patience: float = PATIENCE_SECONDS,
    listener: Listener | None = None,
) -> Resumed:
    """Go on with a run, onto another plan where one is given.

    A run that waits, drained, is told to; the process that conducts it will report. A run that nobody conducts (it was
    stopped, or its process died) is conducted from here, for `seconds` (a placed one for 20, a fused one until it is
    interrupted, where nothing is said); a fused one may get other `slots`. `folder` is its folder, or the name that
    `runs` shows. `secret_file` holds the secret of the cluster
    at `master`; that of `penstock cluster up` is known. A fused run goes on in the folder it was started in, to which
    paths of its pipeline are relative. `dead_letters` is another place for them; a fused run must have had one.
    """
    from penstock.spark.placed.run_folder import RunFolder  # noqa: PLC0415 - psutil belongs to the extra

    where = placed_or_found(folder)
    if isinstance(where, Path) and is_fused(where):
        where = where.resolve()
        onto, measured = _absolute(plan), models if isinstance(models, ModelLibrary) else _absolute(models)
        spark = spark_options(master, None, (), None, _absolute(secret_file))
        kept_in = None if dead_letters is None else absolute_place(str(dead_letters))
        with where_it_was_started(where):
            watch = Stopwatch()
            handle = resume_fused(
                where,
                onto,
                slots=slots,
                seconds=seconds,
                warm_up=warm_up_of(warm_up, seconds),
                models=measured,
                given=given,
                dead_letters=kept_in,
                spark=spark,
                listener=listener or Listener(),
            )
            started = watch.seconds()
            return Resumed(started, await_with_interrupts(handle))
    run = RunFolder(where)
    description = run.description
    other = None if plan is None else Path(plan)
    if run.held_by is not None:
        return Resumed(float(run.ask("resume", patience, other)["seconds"]), None)
    current, segments = run.plan()
    job = prepare_placed(
        current, Load.of_document(description.load), models, description.routing, given, description.segmenter, segments
    )
    letters = dead_letters or description.dead_letters
    length = 20.0 if seconds is None else seconds
    options = RunOptions(
        length,
        warm_up_of(warm_up, length),
        models,
        given,
        None if letters is None else Path(letters),
        listener or Listener(),
        None if secret_file is None else Path(secret_file),
        at_least_once=description.at_least_once,
        tls=None if description.tls is None else Path(description.tls),
        settings=description.settings,
    )
    result = conducted(job, run.place, master or description.master, options, going_on=True, onto=other)
    return Resumed(result.start_seconds, result)


def _absolute(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).absolute()
