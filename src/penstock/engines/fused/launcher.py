"""A fused job as a query: its specification, its description for whoever resumes it, and how it is resumed."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import replace
from glob import iglob
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.clock import stamp
from penstock.base.errors import BadInputError
from penstock.dataflow.code import parse_pipeline, pipeline_document, said_in_a_file
from penstock.dataflow.endpoints import is_driven_by_load, reading_of
from penstock.dataflow.formats import find_format
from penstock.dataflow.logic import sparks_own_code
from penstock.dataflow.regions import unaudited_by
from penstock.engines.fused.preparation import FusedJob, prepare
from penstock.inputs.finders import find_code_in
from penstock.runs.config import FUSED
from penstock.runs.description import RunDescription
from penstock.runs.environment import with_executor_memory
from penstock.spark.session.hadoop import LOCAL

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.fused.query import FusedSpec
    from penstock.inputs.finders import RunnableLike
    from penstock.runs.config import RunConfig
    from penstock.runs.folder import RunFolder


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


def describe_run(job: FusedJob, folder: RunFolder, checkpoint: str, given: str | None) -> None:
    """Write `run.json`, or check that this pipeline ran here before."""
    config = job.config
    known = folder.description if folder.has_run else None
    if known is not None and known.pipeline != job.pipeline.name:
        raise BadInputError(f"{folder.place}: pipeline '{known.pipeline}' ran here, not '{job.pipeline.name}'")
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
            run=f"{job.pipeline.name}-{stamp()}-{secrets.token_hex(3)}" if known is None else known.run,
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


def describe_slots(folder: RunFolder, slots: int) -> None:
    """Write the slots of now for whoever resumes the run, each with the threads it had; batches are sized for them."""
    known = folder.description
    rows = max(1, known.most_rows * slots // known.slots)
    config = replace(known.config, slots=slots)
    folder.describe(known.model_copy(update={"config": config, "most_rows": rows}))


def own_checkpoint(folder: RunFolder, *, local_by_default: bool) -> str:
    """Return the checkpoint of a run that was given none: in its folder, also if paths without a scheme are on another
    file system. A run that began without a scheme keeps its place, wherever that is."""
    inside = str(folder.path / "checkpoint")
    began_so = folder.has_run and folder.description.config.checkpoint == inside
    return inside if local_by_default or began_so else f"{LOCAL}{inside}"


def is_own_checkpoint(folder: Path, checkpoint: str | None) -> bool:
    return checkpoint is None or checkpoint.removeprefix(LOCAL) == str(folder / "checkpoint")


def code_only_in_python(pipeline: Pipeline) -> bool:
    """Whether the document of a pipeline leaves something of it out."""
    return any(said_in_a_file(operator) is None for operator in pipeline.operators.values())


# Resuming a run from its folder.


def name_to_resume_by(given: RunnableLike) -> str | None:
    """What names a pipeline or plan wherever the run is resumed: a file by its whole path. None: it is an object."""
    if not isinstance(given, str | Path):
        return None
    is_file = os.path.isfile(given)  # noqa: PTH113 - no error for odd names
    return str(Path(given).absolute()) if is_file else str(given)


def resumed_config(known: RunDescription, folder: RunFolder, anew: RunConfig, *, has_plan: bool) -> RunConfig:
    """Return the options a run was started with and those given anew; another plan brings other threads and slots."""
    if known.engine != FUSED:
        raise BadInputError(f"{folder.place}: a {known.engine} run, not a fused one")
    before = known.config
    if anew.dead_letters is not None and before.dead_letters is None:
        # they are an exit of the query, and its checkpoint knows how often it reads its sources
        raise BadInputError(f"dead_letters=: run '{known.run}' was started without; start another run to keep them")
    return replace(
        before.resumed_with(anew),
        slots=anew.slots or (None if has_plan else before.slots),
        executor_memory_mb=None if has_plan or anew.session is not None else before.executor_memory_mb,
        folder=folder.place,
        checkpoint=None if is_own_checkpoint(folder.path, before.checkpoint) else before.checkpoint,
    )


def prepare_as_before(known: RunDescription, folder: RunFolder, given: Pipeline | None, config: RunConfig) -> FusedJob:
    """Return the run with the threads it had, over the slots given now; and with batches as it had them, unless other
    slots or models say otherwise."""
    threads = {name: count * known.slots for name, count in known.threads.items()}
    job = prepare(given if given is not None else _named(known, folder.path), config, threads=threads)
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
