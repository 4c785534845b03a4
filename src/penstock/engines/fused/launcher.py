"""A fused job made to run: its folder, its session, its query, and the handle that stands for all of them."""

from __future__ import annotations

import logging
import os
import re
import secrets
from contextlib import ExitStack, chdir, contextmanager, nullcontext
from dataclasses import dataclass, replace
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.clock import stamp
from penstock.base.errors import BadInputError
from penstock.dataflow.code import parse_pipeline, pipeline_document, said_in_a_file
from penstock.dataflow.endpoints import FILE_FORMATS, is_driven_by_load, reading_of
from penstock.dataflow.load import Load
from penstock.dataflow.logic import sparks_own_code
from penstock.dataflow.regions import unaudited_by
from penstock.engines.fused.preparation import FusedJob, batch_hearer, prepare
from penstock.runs.run_index import forget_run, is_unnamed, new_run_folder, note_elsewhere
from penstock.inputs.finders import find_code_in
from penstock.report.report import MOST_DEAD
from penstock.runs.environment import RunSession, SparkOptions, local_by_default, services_of, spark_session
from penstock.runs.handle import RunHandle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.fused.query import FusedSpec
    from penstock.inputs.finders import ModelsLike, RunnableLike
    from penstock.report.listener import Listener
    from penstock.report.report import Report
    from penstock.report.result import RunResult
    from penstock.runs.run_folder import FusedDescription, FusedRunFolder


@dataclass(frozen=True)
class FusedOptions:
    """How a run is conducted. Without `seconds` it has no end; without `folder` it has one among `runs`, as long as
    there is something to go on with."""

    seconds: float | None = None
    warm_up: float = 5.0
    until_end: bool = False
    audit: bool | None = None
    """Look for every tuple in what came out; None: where the run's own generator emits them."""
    dead_letters: str | None = None
    most_dead: float = MOST_DEAD
    """The part of all tuples that may become dead letters in a run that counts as stable, or that goes on without
    end."""
    folder: Path | None = None
    checkpoint: str | None = None
    given: str | None = None
    """What names the pipeline for whoever goes on with the run."""

    def __post_init__(self) -> None:
        if self.warm_up < 0:
            raise BadInputError(f"warm_up=: expected at least 0, found {self.warm_up:g}")
        if self.seconds is not None and self.seconds <= self.warm_up:
            raise BadInputError(f"seconds=: expected more than the warm-up of {self.warm_up:g}, found {self.seconds:g}")
        if not 0 <= self.most_dead <= 1:
            raise BadInputError(f"most_dead=: expected a part of all tuples, from 0 to 1, found {self.most_dead:g}")


def spec_of(job: FusedJob, options: FusedOptions, run: str, folder: Path, checkpoint: str | None = None) -> FusedSpec:
    """`checkpoint`: where nothing is said in `options`; None: in the folder."""
    from penstock.engines.fused.query import FusedSpec  # noqa: PLC0415 - Spark loads only when it is used

    driven = is_driven_by_load(job.pipeline)
    return FusedSpec(
        run=run,
        pipeline=job.pipeline,
        code=job.logic,
        threads=job.threads,
        slots=job.slots,
        folder=folder,
        checkpoint=options.checkpoint or checkpoint or str(folder / "checkpoint"),
        load=job.load if driven else None,
        most_rows=job.most_rows,
        batch_seconds=job.batch_seconds,
        interval_ms=job.interval_ms,
        audit=audits(job, options.audit),
        dead_letters=options.dead_letters,
        most_dead=options.most_dead,
        until_end=options.until_end,
        close_windows=options.until_end and options.folder is None and options.checkpoint is None,
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


def check_ends(pipeline: Pipeline, options: FusedOptions, *, local_by_default: bool = True) -> None:
    """What can be seen of sources before Spark is started: whether there is an end, and whether files are there, on
    this machine's disks. `local_by_default`: paths without a scheme lie there."""
    for name in pipeline.sources:
        operator = pipeline.operators[name]
        reading = reading_of(operator)
        if options.until_end and reading.is_load:
            raise BadInputError(f"until_end=: source '{name}' emits as long as it is asked to: there is no end")
        given = reading.options.get("path", "")
        path = path_on_disk(given, local_by_default=local_by_default)
        if reading.format in FILE_FORMATS and reading.schema is None and path:
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


def start_fused(job: FusedJob, options: FusedOptions, spark: SparkOptions, listener: Listener) -> RunHandle:
    """A run in a folder of its own, or one that goes on with what is in its folder."""
    from penstock.runs.run_folder import FusedRunFolder  # noqa: PLC0415 - Spark loads only when it is used

    local = local_by_default(spark)
    check_ends(job.pipeline, options, local_by_default=local)
    with ExitStack() as opened:
        own = options.folder is None or is_unnamed(options.folder)
        folder = FusedRunFolder((options.folder or new_run_folder(job.pipeline.name)).absolute())
        folder.make()
        note_elsewhere(folder.path)
        opened.callback(_tidy, folder, own=own)
        opened.enter_context(folder.conducting())
        opened.enter_context(_logged(folder.path / "log"))
        checkpoint = options.checkpoint or folder.own_checkpoint(local_by_default=local)
        run = _described(job, options, spark, folder, checkpoint)
        spec = spec_of(job, replace(options, folder=None if own else folder.path), run, folder.path, checkpoint)
        environment = opened.enter_context(services_of(job.pipeline, listener))
        started = opened.enter_context(
            spark_session(
                spark.on_slots_of(job.slot_memory_mb), job.slots, folder.path / "java.log", f"penstock-{run}", listener
            )
        )
        return _handle(job, options, spark, replace(spec, environment=environment), started, folder, listener, opened)
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
    options: FusedOptions,
    spark: SparkOptions,
    spec: FusedSpec,
    started: RunSession,
    folder: FusedRunFolder,
    listener: Listener,
    opened: ExitStack,
) -> RunHandle:
    from penstock.engines.fused.run import FusedRun, Hooks  # noqa: PLC0415
    from penstock.spark.internals.checkpoint import partitions_of  # noqa: PLC0415 - Spark loads only when it is used

    if job.setup is not None and job.setup.sparks_own:
        job = replace(job, setup=replace(job.setup, partitions=partitions_of(started.session, spec.checkpoint)))
    hear, figures = batch_hearer(listener, spec.load, options.seconds)
    run = FusedRun(
        started.session,
        spec,
        options.seconds,
        options.warm_up,
        Hooks(hear, listener.on_tuple, listener.on_message),
        folder,
        started.executors,
    )

    def result(report: Report) -> RunResult:
        offered = spec.load or Load.constant(max(report.offered_rate, 1e-3))
        judged = replace(report, most_dead=options.most_dead)
        return job.result(judged, offered, flat_out=spec.until_end and spec.load is None)

    def again(plan: RunnableLike | None, slots: int | None, seconds: float | None, models: ModelsLike) -> RunHandle:
        if not folder.has_run:
            raise BadInputError(f"run '{spec.run}' came to its end: there is nothing to go on with")
        next_job = job
        if plan is not None or slots is not None or run.slots != job.slots:
            next_job = prepare(
                job.pipeline if plan is None else plan,
                spec.load,
                slots or (run.slots if plan is None else None),
                models,
                search=False,
                # every slot has had as many, however many slots it came to have
                threads=replace(job, slots=run.slots).all_threads if plan is None else None,
                interval_ms=job.interval_ms,
                here=spark.is_on_this_machine,
            )
        return start_fused(next_job, replace(options, folder=folder.path, seconds=seconds), spark, listener)

    run.start(opened.pop_all().close)
    return RunHandle(folder.path, run, figures, result, again)


def _described(
    job: FusedJob, options: FusedOptions, spark: SparkOptions, folder: FusedRunFolder, checkpoint: str
) -> str:
    """Writes down what runs, or checks that it is what ran here before; returns the name of the run."""
    from penstock.runs.run_folder import FusedDescription  # noqa: PLC0415

    known = folder.description() if folder.has_run else None
    if known is not None and known.pipeline != job.pipeline.name:
        raise BadInputError(f"{folder.path}: pipeline '{known.pipeline}' ran here, not '{job.pipeline.name}'")
    run = f"{job.pipeline.name}-{stamp()}-{secrets.token_hex(3)}" if known is None else known.run
    in_python = code_only_in_python(job.pipeline)
    folder.describe(
        FusedDescription(
            run=run,
            pipeline=job.pipeline.name,
            given=options.given,
            definition=None if in_python else pipeline_document(job.pipeline),
            only_in_python=in_python and options.given is None,
            started_in=str(Path.cwd()),
            load=job.load.document() if is_driven_by_load(job.pipeline) else None,
            slots=job.slots,
            threads=dict(job.threads),
            most_rows=job.most_rows,
            batch_seconds=job.batch_seconds,
            interval_ms=job.interval_ms,
            checkpoint=checkpoint,
            master=spark.master,
            executor_memory_mb=spark.on_slots_of(job.slot_memory_mb).executor_memory_mb,
            packages=spark.packages,
            settings=dict(spark.settings),
            audit=audits(job, options.audit),
            dead_letters=options.dead_letters,
            most_dead=options.most_dead,
            until_end=options.until_end,
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
    folder: Path,
    plan: RunnableLike | None,
    *,
    slots: int | None,
    seconds: float | None,
    warm_up: float,
    models: ModelsLike,
    given: Pipeline | None,
    dead_letters: str | None,
    spark: SparkOptions,
    listener: Listener,
) -> RunHandle:
    """From the last commit, with the options it was started with; another plan brings other threads and slots, and
    `dead_letters` may go to another place."""
    from penstock.runs.run_folder import FusedRunFolder  # noqa: PLC0415 - Spark loads only when it is used

    its_folder = FusedRunFolder(folder.absolute())
    known = its_folder.description()
    if dead_letters is not None and known.dead_letters is None:
        # they are an exit of the query, and its checkpoint knows how often it reads its sources
        raise BadInputError(f"dead_letters=: run '{known.run}' was started without; start another run to keep them")
    if spark.session is None:
        spark = replace(
            spark,
            master=spark.master or known.master,
            packages=spark.packages or known.packages,
            executor_memory_mb=spark.executor_memory_mb or (known.executor_memory_mb if plan is None else None),
            settings={**known.settings, **spark.settings},
        )
    here = spark.is_on_this_machine
    if plan is None:
        job = _as_before(known, given if given is not None else _named(known, folder), slots, models, here=here)
    else:
        job = prepare(plan, _load(known), slots, models, search=False, interval_ms=known.interval_ms, here=here)
    options = FusedOptions(
        seconds=seconds,
        warm_up=warm_up,
        until_end=known.until_end,
        audit=known.audit,
        dead_letters=dead_letters or known.dead_letters,
        most_dead=known.most_dead,
        folder=folder,
        checkpoint=None if its_folder.is_own_checkpoint(known.checkpoint) else known.checkpoint,
        given=known.given if plan is None else name_to_resume_by(plan),
    )
    return start_fused(job, options, spark, listener)


def _as_before(
    known: FusedDescription, pipeline: RunnableLike, slots: int | None, models: ModelsLike, *, here: bool
) -> FusedJob:
    """With the threads it had, over as many slots as are wanted now; and with batches as it had them, unless other
    slots or models say otherwise."""
    threads = {name: count * known.slots for name, count in known.threads.items()}
    job = prepare(
        pipeline,
        _load(known),
        slots or known.slots,
        models,
        search=False,
        threads=threads,
        interval_ms=known.interval_ms,
        here=here,
    )
    if models is None and job.slots == known.slots:
        return replace(job, most_rows=known.most_rows, batch_seconds=known.batch_seconds)
    return job


def _load(known: FusedDescription) -> Load | None:
    return None if known.load is None else Load.of_document(known.load)


def _named(known: FusedDescription, folder: Path) -> RunnableLike:
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
