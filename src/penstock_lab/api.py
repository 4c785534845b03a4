"""Experiments as functions: `penstock.run_experiment(...)` does what `penstock dev experiment ...` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock import Listener
from penstock.types import Progress
from penstock_lab.page import draw, write_page
from penstock_lab.registry import EXPERIMENTS
from penstock_lab.sweep import DEFAULT_FOLDER, Finding, live_sweep, sweep

if TYPE_CHECKING:
    from collections.abc import Sequence


def known_experiments() -> list[str]:
    """The names `run_experiment` takes."""
    return EXPERIMENTS.names()


def run_experiment(
    name: str,
    *,
    quick: bool = False,
    folder: str | Path = DEFAULT_FOLDER,
    listener: Listener | None = None,
) -> Finding:
    """Run one experiment on embedded Spark and judge it; cases that `folder` has already are not run again.

    The answer has the `lines` of the table and the `results` of all cases.
    """
    return run_experiments([name], quick=quick, folder=folder, listener=listener)[0]


def run_experiments(
    names: Sequence[str] | None = None,
    *,
    quick: bool = False,
    folder: str | Path = DEFAULT_FOLDER,
    listener: Listener | None = None,
) -> list[Finding]:
    """Several experiments, or all of them, in one sweep."""
    wanted = known_experiments() if names is None else list(names)
    listener = listener or Listener()

    def done(cases: int, of: int) -> None:
        listener.on_progress(Progress("cases", cases, of))

    return sweep(wanted, quick=quick, folder=Path(folder), progress=done)


def run_live_experiments(
    names: Sequence[str],
    *,
    quick: bool = False,
    folder: str | Path = DEFAULT_FOLDER,
    listener: Listener | None = None,
    most: int | None = None,
) -> list[Finding]:
    """Experiments for real, on a Spark cluster of this machine under a controller, at a small scale: minutes a case.

    With `most`, no more cases of each are run now; an experiment of which some are left is not in the answer.
    """
    listener = listener or Listener()
    findings = []
    for name in names:
        reached: list[tuple[int, int]] = []

        def done(cases: int, of: int, reached: list[tuple[int, int]] = reached) -> None:
            reached.append((cases, of))
            listener.on_progress(Progress("cases", cases, of))

        finding = live_sweep(name, quick=quick, folder=Path(folder), progress=done, most=most)
        if finding is None:
            cases, of = reached[-1]
            listener.on_message(
                f"{name}: {cases} of {of} cases are kept in {folder}; the same command goes on from there"
            )
        else:
            findings.append(finding)
    return findings


def draw_experiment(finding: Finding, folder: str | Path | None = None) -> list[Path]:
    """The pictures of an experiment, into `folder` or beside its results."""
    charts = finding.experiment.charts(finding.results, finding.published)
    return draw(list(charts), finding.folder if folder is None else Path(folder))


def results_page(
    folder: str | Path | Sequence[str | Path] = DEFAULT_FOLDER, path: str | Path = "docs/results.md"
) -> list[Path]:
    """Write a page of all results of a folder, or of several, with pictures beside it; return the files written."""
    folders = [folder] if isinstance(folder, str | Path) else folder
    return write_page([Path(one) for one in folders], Path(path))
