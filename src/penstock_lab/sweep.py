"""Run what is missing of some experiments on embedded Spark, one task per case, and judge what came out."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch
from penstock.cluster.cores import cores_here
from penstock.errors import BadInputError, InterruptedWorkError, PenstockError
from penstock_lab.contract import Case, Experiment, Line, Results, counted
from penstock_lab.published_file import Published, read_published
from penstock_lab.registry import EXPERIMENTS, LIVE
from penstock_lab.store import CaseStore, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFAULT_FOLDER = Path("out/experiments")
MOST_FAILURES_TOLD = 3


class CasesFailedError(PenstockError):
    """Cases that raised; the others are kept."""


@dataclass(frozen=True)
class Finding:
    """An experiment whose cases are all done."""

    experiment: Experiment
    quick: bool
    results: Results
    published: Published
    lines: tuple[Line, ...]
    folder: Path
    """Where its files are."""

    def document(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment.name,
            "figures": self.experiment.figures,
            "quick": self.quick,
            "cases": len(self.results.all),
            "lines": [line.document() for line in self.lines],
            "verdicts": {str(verdict): count for verdict, count in counted(self.lines).items()},
            "choices": list(self.experiment.choices),
            "gaps": list(self.experiment.gaps),
            "folder": str(self.folder),
        }


def run_stored_case(task: str) -> None:
    """In a worker: run the case a task names, and keep what it gave."""
    stored = json.loads(task)
    experiment = EXPERIMENTS.create(stored["experiment"])
    watch = Stopwatch()
    measures = experiment.run_case(dict(stored["case"]))
    CaseStore(Path(stored["folder"]), experiment.name).keep(stored["case"], measures, watch.seconds())


def sweep(
    names: Sequence[str],
    *,
    quick: bool = False,
    folder: Path = DEFAULT_FOLDER,
    progress: Callable[[int, int], None] | None = None,
    session: Any = None,
) -> list[Finding]:
    """Every experiment named, in that order. Cases that are done already are not run again.

    `progress` hears how many cases are done of how many; `session` is a Spark session to use instead of one of its own.
    """
    experiments = [EXPERIMENTS.create(name) for name in dict.fromkeys(names)]
    stores = [CaseStore(folder.absolute(), experiment.name) for experiment in experiments]
    asked = [list(experiment.cases(quick=quick)) for experiment in experiments]
    tasks: list[str] = []
    for experiment, store, cases in zip(experiments, stores, asked, strict=True):
        store.begin(cases, quick=quick)
        tasks += [_task(experiment, store, case) for case in store.missing(cases)]
    total = sum(map(len, asked))
    kept = total - len(tasks)

    def report_done(done: int) -> None:
        if progress is not None:
            progress(kept + done, total)

    report_done(0)
    if tasks:
        _run(tasks, report_done, session, total, folder)
    return [_finding(*parts, quick=quick) for parts in zip(experiments, stores, asked, strict=True)]


def live_sweep(
    name: str,
    *,
    quick: bool = False,
    folder: Path = DEFAULT_FOLDER,
    progress: Callable[[int, int], None] | None = None,
    most: int | None = None,
) -> Finding | None:
    """An experiment for real, one case after the other, in this process. Cases that are done already are not run
    again, and no more than `most` are run now: those nothing is kept of come before those of earlier code. None while
    some are left."""
    experiment = LIVE.create(name)
    store, cases = CaseStore(folder.absolute(), experiment.name), list(experiment.cases(quick=quick))
    store.begin(cases, quick=quick)
    missing = sorted(store.missing(cases), key=lambda case: store.path_of(case).is_file())
    now = missing[:most]
    for number, case in enumerate(now):
        if progress is not None:
            progress(len(cases) - len(missing) + number, len(cases))
        watch = Stopwatch()
        store.keep(case, experiment.run_case(dict(case)), watch.seconds())
    if progress is not None:
        progress(len(cases) - len(missing) + len(now), len(cases))
    return None if len(now) < len(missing) else _finding(experiment, store, cases, quick=quick)


def _task(experiment: Experiment, store: CaseStore, case: Case) -> str:
    return canonical({"experiment": experiment.name, "folder": str(store.folder), "case": case})


def _run(tasks: list[str], report_done: Callable[[int], None], session: Any, total: int, folder: Path) -> None:
    try:
        from penstock.spark.session.embedded import embedded_session  # noqa: PLC0415
        from penstock_lab.spark_sweep import run_tasks  # noqa: PLC0415 - Spark loads only when it is used
    except ImportError as error:
        raise BadInputError("experiments need pyspark; install it with: pip install 'penstock[spark]'") from error
    with embedded_session(cores_here(), warm=False) if session is None else nullcontext(session) as own:
        ended = run_tasks(own, run_stored_case, tasks, report_done)
    if ended.interrupted:
        kept = total - len(tasks) + len(ended.finished)
        raise InterruptedWorkError(f"{kept} of {total} cases are kept in {folder}; the same command goes on from there")
    if ended.failed:
        failures = [f"{json.loads(task)['case']}: {error}" for task, error in ended.failed.items()]
        few = "; ".join(failures[:MOST_FAILURES_TOLD])
        more = f" (and {len(failures) - MOST_FAILURES_TOLD} more)" if len(failures) > MOST_FAILURES_TOLD else ""
        raise CasesFailedError(f"{len(failures)} of {total} cases, the others are kept in {folder}: {few}{more}")


def finding(name: str, folder: Path) -> Finding:
    """What a folder holds of an experiment, without running anything."""
    return stored_finding(EXPERIMENTS.create(name), folder)


def stored_finding(experiment: Experiment, folder: Path) -> Finding:
    store = CaseStore(folder.absolute(), experiment.name)
    asked = store.asked()
    return _finding(experiment, store, [dict(case) for case in asked.cases], quick=asked.quick)


def _finding(experiment: Experiment, store: CaseStore, cases: list[Case], *, quick: bool) -> Finding:
    results = store.results(cases)
    store.write_parquet(results)
    published = read_published(experiment.published)
    lines = tuple(experiment.lines(results, published))
    return Finding(experiment, quick, results, published, lines, store.home)
