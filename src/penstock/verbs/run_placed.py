"""`penstock.run_placed(...)`: a plan on a cluster, every operator on the slot the plan names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInputError
from penstock.jobs.conducting import check_search
from penstock.jobs.placed import DEFAULT_PLACED_SEGMENTER, prepare_placed
from penstock.jobs.placed_run import RunOptions, conducted, fresh_folder, searched, with_packages
from penstock.report.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.dataflow.load import Load
    from penstock.dataflow.pipeline import Pipeline
    from penstock.jobs.find import ModelsLike, RunnableLike
    from penstock.prediction.rate import Routing
    from penstock.report.placed_result import PlacedResult


def run_placed(
    plan: RunnableLike,
    rate: float | str | Load | None = None,
    *,
    master: str | None = None,
    secret_file: str | Path | None = None,
    seconds: float = 20.0,
    warm_up: float = 5.0,
    find_max: bool = False,
    low: float | None = None,
    high: float | None = None,
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
) -> PlacedResult:
    """Run a plan with every operator on the slot the plan names, on a standalone cluster.

    `master` is its address, and `secret_file` holds what it asks for; None means the one of `penstock cluster up`.
    What `segmenter` joins and the plan puts on the same slots runs as one. `folder` is where the run keeps its commits
    and what it needs to be resumed: on several machines, one they all share, or a URI such as s3://bucket/run. A sink
    that cannot commit by epoch is refused, or with `at_least_once` may hold an epoch twice after a death. With `tls`, a
    file with a certificate and its key, the run's processes talk to each other by TLS. `packages` and `settings` are
    Spark's, for what sinks need. With `find_max` the highest stable rate is
    looked for, between `low` and `high`; every trial is a run of `seconds` in a folder of its own. A `session`
    of `placed_session` (`penstock.jobs.placed_run`) is used and left as it was: runs that share it find executors warm.
    """
    check_search(low, high, rate, search=find_max)
    job = prepare_placed(plan, rate, models, routing, given, segmenter or DEFAULT_PLACED_SEGMENTER)
    from penstock.spark.placed.run_folder import is_run  # noqa: PLC0415 - psutil belongs to the extra

    place = folder if folder is not None else fresh_folder(job.pipeline.name)
    if is_run(place):
        raise BadInputError(f"{place}: a run was started here before; resume it (penstock resume), or name another")
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
    if find_max:
        return searched(job, place, master, options, low, high)
    return conducted(job, place, master, options)
