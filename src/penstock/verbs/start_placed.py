"""`penstock.start_placed(...)`: a plan that runs on a cluster from now on, as an object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.dataflow.load import Load
from penstock.errors import BadInputError
from penstock.files import write_text
from penstock.jobs.find import runnable
from penstock.jobs.placed import DEFAULT_PLACED_SEGMENTER, prepare_placed
from penstock.jobs.placed_run import RunOptions, fresh_folder, with_packages
from penstock.jobs.placed_run import start_placed as started
from penstock.report.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.dataflow.pipeline import Pipeline
    from penstock.jobs.find import ModelsLike, RunnableLike
    from penstock.jobs.placed_handle import PlacedHandle
    from penstock.planning.file import SavedPlan
    from penstock.prediction.rate import Routing
    from penstock.spark.placed.run_folder import RunFolder

ONTO = "onto.json"
"""Where a plan that is no file is put down, for the run to change to."""


def start_placed(
    plan: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    master: str | None = None,
    secret_file: str | Path | None = None,
    seconds: float | None = None,
    warm_up: float = 5.0,
    models: ModelsLike = None,
    routing: Routing | str | None = None,
    segmenter: str | None = None,
    folder: str | Path | None = None,
    given: Pipeline | None = None,
    dead_letters: str | Path | None = None,
    at_least_once: bool = False,
    tls: str | Path | None = None,
    packages: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    session: Any = None,
    listener: Listener | None = None,
) -> PlacedHandle:
    """As `penstock.run_placed`, but returns at once with a handle: `status`, `progress`, `hold()`, `resume(plan)`,
    `rescale(slots)`, `drain()`, `stop()`, `await_end()`. Without `seconds` it goes on until it is told to end.

    A `folder` in which a run was started before is gone on with, from its last commit: under the load it had, and by
    `plan` if that is another than it had.
    """
    from penstock.spark.placed.run_folder import RunFolder, is_run  # noqa: PLC0415 - psutil belongs to the extra

    options = RunOptions(
        seconds,
        warm_up,
        models,
        given,
        None if dead_letters is None else Path(dead_letters),
        listener or Listener(),
        None if secret_file is None else Path(secret_file),
        session,
        at_least_once=at_least_once,
        tls=None if tls is None else Path(tls),
        settings=with_packages(packages, settings),
    )
    if folder is None or not is_run(folder):
        job = prepare_placed(plan, rate, models, routing, given, segmenter or DEFAULT_PLACED_SEGMENTER)
        place = folder if folder is not None else fresh_folder(job.pipeline.name)
        return started(job, place, master, options)
    run = RunFolder(folder)
    described = run.description
    options = replace(options, settings={**described.settings, **options.settings})
    current, segments = run.plan()
    load = Load.of_document(described.load)
    job = prepare_placed(current, load, models, described.routing, given, described.segmenter, segments)
    onto = _other(plan, current, run)
    return started(job, run.place, master or described.master, options, going_on=True, onto=onto)


def _other(plan: RunnableLike, current: SavedPlan, run: RunFolder) -> Path | None:
    """The file of a plan that is another than the run has; None where it is the same."""
    _, saved = runnable(plan)
    if saved is None:
        raise BadInputError("placed execution needs a plan, not a pipeline: make one with `plan`")
    if saved == current:
        return None
    if isinstance(plan, str | Path):
        return Path(plan)
    if "://" in run.place:
        raise BadInputError(f"plan=: expected a file, where {run.place} is no folder to put it down in")
    write_text(run.path / ONTO, saved.model_dump_json() + "\n")
    return run.path / ONTO
