"""Run what is missing of some experiments on embedded Spark, one task per case, and judge what came out."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock import BadInputError, InterruptedWorkError, PenstockError
from penstock.plugins import (
    Spec,
    Stopwatch,
    atomic_path,
    check,
    cores_here,
    missing_package,
    read_document,
    write_text,
)
from penstock_lab.contract import Case, CaseResult, Experiment, Line, Measures, Results, counted
from penstock_lab.published_values import Published, read_published
from penstock_lab.registry import EXPERIMENTS, LIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# The folder of a sweep: one file per finished case, written at once, so that a sweep that was cut short can resume.
#
# FOLDER/NAME/sweep.json      the cases that were asked for
# FOLDER/NAME/cases/KEY.json  one finished case
# FOLDER/NAME/results.parquet all of them as a table
# FOLDER/NAME/*.png           the pictures
#
# A case is known by its parameters and by the code that ran it: after a change of the code it is run again.


NOT_HASHED = (
    "penstock/cli/*",
    "penstock/pictures/*",
    "penstock_lab/api.py",
    "penstock_lab/cli.py",
    "penstock_lab/*_lines.py",
    "penstock_lab/page.py",
    "penstock_lab/published/*",
    "penstock_lab/spark_sweep.py",
)
"""Parts of the package that cannot change what a case gives: an experiment's table and charts are in `*_lines.py`."""
HASHED = {".py", ".yaml", ".json"}


class Sweep(Spec):
    """The file `sweep.json`."""

    experiment: str
    quick: bool
    cases: tuple[dict[str, Any], ...]


class StoredCase(Spec):
    """The file of a finished case."""

    experiment: str
    made_by: str
    seconds: float
    case: dict[str, Any]
    measures: dict[str, Any]


def canonical(case: Case) -> str:
    return json.dumps(case, sort_keys=True, allow_nan=False)


def key_of(case: Case) -> str:
    """The name of a case's file."""
    return hashlib.sha256(canonical(case).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def code_version() -> str:
    """A digest of all the code and data of Penstock a case can depend on."""
    digest = hashlib.sha256()
    for root in (Path(penstock.__file__).parent, Path(__file__).parent):
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root.parent).as_posix()
            if path.suffix in HASHED and not any(fnmatch(name, part) for part in NOT_HASHED):
                digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class CaseStore:
    """The results of one experiment in a folder."""

    folder: Path
    experiment: str

    @property
    def home(self) -> Path:
        return self.folder / self.experiment

    def path_of(self, case: Case) -> Path:
        return self.home / "cases" / f"{key_of(case)}.json"

    def begin(self, cases: Sequence[Case], *, quick: bool) -> None:
        """Write down what was asked for."""
        keys = [key_of(case) for case in cases]
        if len(set(keys)) < len(keys):
            twice = next(case for case, key in zip(cases, keys, strict=True) if keys.count(key) > 1)
            raise BadInputError(f"experiment '{self.experiment}' has the case {canonical(twice)} twice")
        try:
            (self.home / "cases").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"{self.home}: cannot be made: {error.strerror or error}") from error
        document = {"experiment": self.experiment, "quick": quick, "cases": list(cases)}
        write_text(self.home / "sweep.json", json.dumps(document, indent=1, allow_nan=False) + "\n")

    def keep(self, case: Case, measures: Measures, seconds: float) -> None:
        """Write a finished case; whoever reads the folder sees all of it or nothing."""
        done = {
            "experiment": self.experiment,
            "made_by": code_version(),
            "seconds": seconds,
            "case": case,
            "measures": measures,
        }
        write_text(self.path_of(case), json.dumps(done, allow_nan=False) + "\n")

    def find(self, case: Case) -> StoredCase | None:
        """A case that is done already, by the same code."""
        path = self.path_of(case)
        if not path.is_file():
            return None
        done = check(StoredCase, read_document(path), str(path))
        return done if done.made_by == code_version() and canonical(done.case) == canonical(case) else None

    def missing(self, cases: Sequence[Case]) -> list[Case]:
        return [case for case in cases if self.find(case) is None]

    def asked(self) -> Sweep:
        path = self.home / "sweep.json"
        if not path.is_file():
            raise BadInputError(f"{self.folder}: no results of the experiment '{self.experiment}' here")
        return check(Sweep, read_document(path), str(path))

    def results(self, cases: Sequence[Case]) -> Results:
        """All of them, or an error that says how many are missing."""
        kept = [self.find(case) for case in cases]
        left = kept.count(None)
        if left:
            raise BadInputError(
                f"{self.home}: {left} of {len(cases)} cases are missing or were made by other code; "
                f"run the experiment '{self.experiment}' again"
            )
        return Results(tuple(CaseResult(dict(done.case), dict(done.measures)) for done in kept if done is not None))

    def write_parquet(self, results: Results) -> Path:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
        from pyarrow import parquet  # noqa: PLC0415

        path = self.home / "results.parquet"
        with atomic_path(path) as temporary:
            parquet.write_table(pa.table(columns(results)), temporary)
        return path


def columns(results: Results) -> dict[str, list[Any]]:
    """Results as a table: a column per parameter and measure. What is no plain value is JSON text."""
    names = list(dict.fromkeys(key for result in results for key in (*result.case, *result.measures)))
    return {name: _column([{**result.case, **result.measures}.get(name) for result in results]) for name in names}


def _column(values: list[Any]) -> list[Any]:
    known = [value for value in values if value is not None]
    for kind in (bool, int, str):
        if all(type(value) is kind for value in known):
            return values
    if all(type(value) in (int, float) for value in known):
        return [None if value is None else float(value) for value in values]
    return [None if value is None else json.dumps(value, sort_keys=True) for value in values]


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
        raise missing_package("pyspark", "experiments need") from error
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
