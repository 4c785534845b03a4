"""The folder of a sweep: one file per finished case, written at once, so that a sweep that was cut short goes on.

    FOLDER/NAME/sweep.json      the cases that were asked for
    FOLDER/NAME/cases/KEY.json  one finished case
    FOLDER/NAME/results.parquet all of them as a table
    FOLDER/NAME/*.png           the pictures

A case is known by its parameters and by the code that ran it: after a change of the code it is run again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.errors import BadInputError
from penstock.files import Spec, atomic_path, check, read_document, write_text
from penstock_lab.contract import Case, CaseResult, Measures, Results

if TYPE_CHECKING:
    from collections.abc import Sequence

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
