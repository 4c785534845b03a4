"""A fused job made to run: its folder, its session, its query, and the handle that stands for all of them."""

from __future__ import annotations

import logging
import os
import re
import secrets
from contextlib import ExitStack, chdir, contextmanager, nullcontext
from dataclasses import replace
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.clock import stamp
from penstock.base.errors import BadInputError
from penstock.connectors.topic_address import absolute_place
from penstock.dataflow.code import parse_pipeline, pipeline_document, said_in_a_file
from penstock.dataflow.endpoints import is_driven_by_load, reading_of
from penstock.dataflow.formats import find_format
from penstock.dataflow.load import Load
from penstock.dataflow.logic import sparks_own_code
from penstock.dataflow.regions import unaudited_by
from penstock.engines.fused.preparation import FusedJob, batch_hearer, prepare
from penstock.engines.run_index import forget_run, is_unnamed, new_run_folder, note_elsewhere
from penstock.inputs.finders import find_code_in
from penstock.runs.environment import (
    RunSession,
    local_by_default,
    services_of,
    spark_session,
    with_executor_memory,
)
from penstock.runs.handle import RunHandle

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from contextlib import AbstractContextManager

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.fused.query import FusedSpec
    from penstock.inputs.finders import ModelsLike, RunnableLike
    from penstock.report.listener import Listener
    from penstock.report.report import Report
    from penstock.report.result import RunResult
    from penstock.runs.config import RunConfig
    from penstock.runs.description import RunDescription
    from penstock.runs.run_folder import FusedRunFolder


def spec_of(
    job: FusedJob, config: RunConfig, run: str, folder: Path, checkpoint: str | None = None, *, is_kept: bool = True
) -> FusedSpec:
    """What to run. `checkpoint`: used if the options name none; default: in the folder. `is_kept`: the folder stays, so
    that the run can be resumed."""
    from penstock.engines.fused.query import FusedSpec  # noqa: PLC0415 - Spark loads only when it is used

    driven = is_driven_by_load(job.pipeline)
    return FusedSpec(
        run=run,
        pipeline=job.pipeline,
        code=job.logic,
        threads=job.threads,
        slots=job.slots,
        folder=folder,
        checkpoint=config.checkpoint or checkpoint or str(folder / "checkpoint"),
        config=config,
        load=job.load if driven else None,
        most_rows=job.most_rows,
        batch_seconds=job.batch_seconds,
        audit=audits(job, config.audit),
        close_windows=config.until_end and not is_kept and config.checkpoint is None,
    )


def audits(job: FusedJob, asked: bool | None) -> bool:
    """Whether every tuple is looked for in what came out: as asked, else where the load generator emits them and they
    can be told apart."""
    unaudited = unaudited_by(job.pipeline, sparks_own_code(job.logic))
    if asked and unaudited is not None:
        raise BadInputError(
            f"audit=: operator '{unaudited}' is Spark's own and reads the source: behind it tuples are not told apart"
        )
    return is_driven_by_load(job.pipeline) and unaudited is None if asked is None else asked


def check_ends(pipeline: Pipeline, *, until_end: bool = False, local_by_default: bool = True) -> None:
    """Check of sources, before Spark is started, that there is an end and that files are there, on this machine's
    disks. `local_by_default`: paths without a scheme lie there."""
    for name in pipeline.sources:
        operator = pipeline.operators[name]
        reading = reading_of(operator)
        if until_end and reading.is_load:
            raise BadInputError(f"until_end=: source '{name}' emits as long as it is asked to: there is no end")
        given = reading.options.get("path", "")
        path = path_on_disk(given, local_by_default=local_by_default)
        if find_format(reading.format).is_files and reading.schema is None and path:
            pattern = f"{path}/*" if Path(path).is_dir() else path
            if next(iglob(pattern), None) is None:  # noqa: PTH207 - the user's pattern, from anywhere
                raise BadInputError(f"source '{name}': no file matches '{given}'; or give its schema, to wait for some")


def path_on_disk(place: str, *, local_by_default: bool) -> str | None:
    """A place as Hadoop writes it (`/data`, `file:/data`, `file:///data`) as a path of this machine; None: it lies
    elsewhere."""
    scheme, colon, path = place.partition(":")
    if not colon or "/" in scheme:
        return place if local_by_default else None
    return re.sub(r"^/{2,}", "/", path) if scheme.lower() == "file" else None


def start_fused(
    job: FusedJob, listener: Listener, given: str | None = None, places: Collection[Slot] | None = None
) -> RunHandle:
    """Start a run in a folder of its own, or resume the one in its folder. `given`: name of the pipeline for whoever
    resumes the run; `places`: slots by name, if the cluster's Workers offer those."""
    from penstock.runs.run_folder import FusedRunFolder  # noqa: PLC0415 - Spark loads only when it is used

    config = job.config
    if config.dead_letters is not None:
        config = replace(config, dead_letters=absolute_place(config.dead_letters))
    local = local_by_default(config)
    check_ends(job.pipeline, until_end=config.until_end, local_by_default=local)
    with ExitStack() as opened:
        own = config.folder is None or is_unnamed(Path(config.folder))
        folder = FusedRunFolder(Path(config.folder or new_run_folder(job.pipeline.name)).absolute())
        folder.make()
        note_elsewhere(folder.path)
        opened.callback(_tidy, folder, own=own)
        opened.enter_context(folder.conducting())
        opened.enter_context(_logged(folder.path / "log"))
        checkpoint = config.checkpoint or folder.own_checkpoint(local_by_default=local)
        run = _described(job, config, folder, checkpoint, given)
        spec = spec_of(job, config, run, folder.path, checkpoint, is_kept=not own)
        environment = opened.enter_context(services_of(job.pipeline, listener))
        started = opened.enter_context(
            spark_session(
                with_executor_memory(config, job.slot_memory_mb),
                job.slots,
                folder.path / "java.log",
                f"penstock-{run}",
                listener,
                places,
            )
        )
        spec = replace(spec, environment=environment)
        return _handle(job, spec, started, folder, listener, opened, given, places)
    raise AssertionError("the block above returns or raises")


def _tidy(folder: FusedRunFolder, *, own: bool) -> None:
    """A folder nobody named is kept only for what may be gone on with: a run that failed, was lost or interrupted when
    it had begun its first batch."""
    from penstock.runs.run_folder import RunState  # noqa: PLC0415 - Spark loads only when it is used

    state, details = folder.state()
    over = state is RunState.ENDED and not details.get("resumable")
    if own and (over or not folder.has_begun):
        forget_run(folder.path)


def _handle(
    job: FusedJob,
    spec: FusedSpec,
    started: RunSession,
    folder: FusedRunFolder,
    listener: Listener,
    opened: ExitStack,
    given: str | None = None,
    places: Collection[Slot] | None = None,
) -> RunHandle:
    from penstock.engines.fused.run import FusedRun, Hooks  # noqa: PLC0415
    from penstock.spark.internals.checkpoint import partitions_of  # noqa: PLC0415 - Spark loads only when it is used

    if job.setup is not None and job.setup.sparks_own:
        job = replace(job, setup=replace(job.setup, partitions=partitions_of(started.session, spec.checkpoint)))
    config = spec.config
    hear, figures = batch_hearer(listener, spec.load, config.run_seconds)
    run = FusedRun(
        started.session, spec, Hooks(hear, listener.on_tuple, listener.on_message), folder, started.executors
    )

    def result(report: Report) -> RunResult:
        offered = spec.load or Load.constant(max(report.offered_rate, 1e-3))
        judged = replace(report, max_dead_letter_ratio=config.max_dead_letter_ratio)
        return job.result(judged, offered, flat_out=config.until_end and spec.load is None)

    def again(plan: RunnableLike | None, slots: int | None, seconds: float | None, models: ModelsLike) -> RunHandle:
        if not folder.has_run:
            raise BadInputError(f"run '{spec.run}' came to its end: there is nothing to go on with")
        next_config = replace(config, folder=str(folder.path), seconds=seconds)
        if plan is None and slots is None and run.slots == job.slots:
            return start_fused(replace(job, config=next_config), listener, given, places)
        prepared = prepare(
            job.pipeline if plan is None else plan,
            replace(
                next_config,
                rate=spec.load,
                slots=slots or (run.slots if plan is None else None),
                models=models,
            ),
            # every slot has had as many, however many slots it came to have
            threads=replace(job, slots=run.slots).all_threads if plan is None else None,
        )
        return start_fused(prepared, listener, given, places)

    run.start(opened.pop_all().close)
    return RunHandle(folder.path, run, figures, result, again)


def _described(job: FusedJob, config: RunConfig, folder: FusedRunFolder, checkpoint: str, given: str | None) -> str:
    """Write `run.json`, or check that this pipeline ran here before. Return the name of the run."""
    from penstock.runs.description import RunDescription  # noqa: PLC0415

    known = folder.description() if folder.has_run else None
    if known is not None and known.pipeline != job.pipeline.name:
        raise BadInputError(f"{folder.path}: pipeline '{known.pipeline}' ran here, not '{job.pipeline.name}'")
    run = f"{job.pipeline.name}-{stamp()}-{secrets.token_hex(3)}" if known is None else known.run
    in_python = code_only_in_python(job.pipeline)
    resolved = replace(
        with_executor_memory(config, job.slot_memory_mb),
        rate=job.load if is_driven_by_load(job.pipeline) else None,
        slots=job.slots,
        checkpoint=checkpoint,
        audit=audits(job, config.audit),
    )
    folder.describe(
        RunDescription(
            run=run,
            pipeline=job.pipeline.name,
            config=resolved,
            given=given,
            definition=None if in_python else pipeline_document(job.pipeline),
            only_in_python=in_python and given is None,
            started_in=str(Path.cwd()),
            threads=dict(job.threads),
            most_rows=job.most_rows,
            batch_seconds=job.batch_seconds,
            started=stamp(),
        )
    )
    return run


def code_only_in_python(pipeline: Pipeline) -> bool:
    """Whether the document of a pipeline leaves something of it out."""
    return any(said_in_a_file(operator) is None for operator in pipeline.operators.values())


@contextmanager
def _logged(file: Path) -> Iterator[None]:
    """What Penstock logs while the run lives, in the run's own folder."""
    logger = logging.getLogger("penstock")
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(before or logging.INFO, logging.INFO))
    file.chmod(0o600)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(before)


# Going on with a fused run whose process is gone.


def name_to_resume_by(given: RunnableLike) -> str | None:
    """What names a pipeline or plan wherever the run is resumed: a file by its whole path. None: it is an object."""
    if not isinstance(given, str | Path):
        return None
    is_file = os.path.isfile(given)  # noqa: PTH113 - no error for odd names
    return str(Path(given).absolute()) if is_file else str(given)


def where_it_was_started(folder: Path) -> AbstractContextManager[None]:
    """Inside the block this process is in the folder the run was started in: paths of its pipeline, of files and of
    modules, are relative to that. Where it is gone, this one has to do."""
    from penstock.runs.run_folder import FusedRunFolder  # noqa: PLC0415 - Spark loads only when it is used

    started_in = FusedRunFolder(folder).description().started_in
    return chdir(started_in) if started_in is not None and Path(started_in).is_dir() else nullcontext()


def resume_fused(
    folder: Path, plan: RunnableLike | None, anew: RunConfig, given: Pipeline | None, listener: Listener
) -> RunHandle:
    """Resume from the last commit, with the options the run was started with and those given anew; another plan brings
    other threads and slots."""
    from penstock.runs.run_folder import FusedRunFolder  # noqa: PLC0415 - Spark loads only when it is used

    its_folder = FusedRunFolder(folder.absolute())
    known = its_folder.description()
    before = known.config
    if anew.dead_letters is not None and before.dead_letters is None:
        # they are an exit of the query, and its checkpoint knows how often it reads its sources
        raise BadInputError(f"dead_letters=: run '{known.run}' was started without; start another run to keep them")
    config = replace(
        before.resumed_with(anew),
        slots=anew.slots or (before.slots if plan is None else None),
        executor_memory_mb=before.executor_memory_mb if plan is None and anew.session is None else None,
        folder=str(folder),
        checkpoint=None if its_folder.is_own_checkpoint(before.checkpoint) else before.checkpoint,
    )
    if plan is not None:
        return start_fused(prepare(plan, config), listener, name_to_resume_by(plan))
    job = _as_before(known, given if given is not None else _named(known, folder), config)
    return start_fused(job, listener, known.given)


def _as_before(known: RunDescription, pipeline: RunnableLike, config: RunConfig) -> FusedJob:
    """Return the run with the threads it had, over the slots given now; and with batches as it had them, unless other
    slots or models say otherwise."""
    threads = {name: count * known.slots for name, count in known.threads.items()}
    job = prepare(pipeline, config, threads=threads)
    if config.models is None and job.slots == known.slots:
        return replace(job, most_rows=known.most_rows, batch_seconds=known.batch_seconds)
    return job


def _named(known: RunDescription, folder: Path) -> RunnableLike:
    """The pipeline or plan by the name it was given: code that lies beside its file is found by that. Without a name
    code is found where the run was started."""
    if known.given is not None:
        return known.given
    if known.definition is None:
        raise BadInputError(
            f"{folder}: the code of pipeline '{known.pipeline}' exists only in Python; go on with "
            f"penstock.start(pipeline, folder='{folder}')"
        )
    if known.started_in is not None:
        find_code_in(Path(known.started_in))
    return parse_pipeline(known.definition, f"{folder}: definition")
