"""The page of results: tables and pictures of all experiments of a folder, made by one command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import BadInputError
from penstock.plugins import check, check_writable, read_document, write_output
from penstock_lab.contract import Agreement, CaseResult, Results, counted
from penstock_lab.published_values import read_published
from penstock_lab.registry import EXPERIMENTS, LIVE
from penstock_lab.sweep import CaseStore, Finding, StoredCase, code_version, stored_finding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.plugins import Chart, Registry
    from penstock_lab.contract import Case, Experiment

COUNTED_BEFORE = "113 agrees, 64 differs, 8 better, 0 tie, 12 worse, 25 not comparable"
"""Counts without own policies before the rule that a line counts as *agrees* only if it could have failed."""
MOST_LOAD = 4.0
"""Load average above which a live case, which keeps two cores and their queues busy, was not alone."""
SHORTENED = "Shortened runs (`--quick`): "


def write_page(folders: Sequence[Path], path: Path) -> list[Path]:
    """Write the page to `path` and its pictures to `pictures/` beside it, and return all files written.

    The page has what the folders have results of, and nothing else.
    """
    check_writable(path)
    written = [path]
    parts: dict[str, PagePart] = {}
    for folder in folders:
        for each in findings(folder):
            if each.experiment.name in parts:
                raise BadInputError(f"{folder}: another folder has results of the experiment '{each.experiment.name}'")
            charts = list(each.experiment.charts(each.results, each.published))
            pictures = draw(charts, path.parent / "pictures", f"result-{each.experiment.name}-")
            gaps = kept_gaps(kept_cases(CaseStore(folder.absolute(), each.experiment.name)))
            shown = section(each, charts, [f"pictures/{picture.name}" for picture in pictures], gaps)
            parts[each.experiment.name] = PagePart(each, shown)
            written += pictures
    in_order = [parts[name] for name in _names(EXPERIMENTS, LIVE) if name in parts]
    write_output(path, "\n".join([head(in_order), *(part.section for part in in_order)]).rstrip() + "\n")
    return written


@dataclass(frozen=True)
class PagePart:
    """One experiment on a page."""

    finding: Finding
    section: str

    @property
    def row(self) -> str:
        """The row of the table on top."""
        experiment, counts = self.finding.experiment, counted(self.finding.lines)
        cells = [f"[{experiment.name}](#{experiment.name})", experiment.figures]
        return "| " + " | ".join([*cells, *(str(counts[verdict]) for verdict in Agreement)]) + " |"


def _names(*registries: Registry[Experiment]) -> list[str]:
    return [registry.create(name).name for registry in registries for name in registry.names()]


def findings(folder: Path) -> list[Finding]:
    """Return the finding of every experiment that the folder has results of."""
    experiments = [registry.create(name) for registry in (EXPERIMENTS, LIVE) for name in registry.names()]
    there = [experiment for experiment in experiments if (folder / experiment.name / "sweep.json").is_file()]
    if not there:
        raise BadInputError(f"{folder}: no results here; run 'penstock dev experiment --all -o {folder}' first")
    live = set(_names(LIVE))
    return [(kept_finding if each.name in live else stored_finding)(each, folder) for each in there]


def kept_finding(experiment: Experiment, folder: Path) -> Finding:
    """Of an experiment on Spark, whose cases take minutes each: those there are, whichever code made them."""
    store = CaseStore(folder.absolute(), experiment.name)
    kept = [done for done in kept_cases(store) if done is not None]
    if not kept:
        raise BadInputError(f"{store.home}: no case of the experiment '{experiment.name}' is done")
    results = Results(tuple(CaseResult(dict(done.case), dict(done.measures)) for done in kept))
    published = read_published(experiment.published)
    lines = tuple(experiment.lines(results, published))
    return Finding(experiment, store.asked().quick, results, published, lines, store.home)


def kept_cases(store: CaseStore) -> list[StoredCase | None]:
    """Of every case that was asked for; None: it is not done."""
    paths = [store.path_of(dict(case)) for case in store.asked().cases]
    return [check(StoredCase, read_document(path), str(path)) if path.is_file() else None for path in paths]


def kept_gaps(cases: Sequence[StoredCase | None]) -> list[str]:
    """Return what to know of the cases that were asked for: those that are not done, those that other code than this
    made, and those that ran on a busy machine."""
    gaps, kept = [], [done for done in cases if done is not None]
    if left := len(cases) - len(kept):
        gaps.append(f"{left} of {len(cases)} cases were not run.")
    if older := [_named(done.case, kept) for done in kept if done.made_by != code_version()]:
        gaps.append(f"Made by an earlier version of the code, and not run again: {'; '.join(older)}.")
    if busy := [f"{_named(done.case, kept)} ({done.measures['load']:.1f})" for done in kept if _is_disturbed(done)]:
        gaps.append(f"Run while other work kept the machine busy (load average in brackets): {'; '.join(busy)}.")
    return gaps


def _is_disturbed(done: StoredCase) -> bool:
    return float(done.measures.get("load", 0.0)) > MOST_LOAD


def _named(case: Case, among: Sequence[StoredCase]) -> str:
    """A case by what sets it apart from the others."""
    differs = [key for key in case if any(other.case.get(key, case[key]) != case[key] for other in among)]
    return ", ".join(f"{key} {case[key]}" for key in differs) or "all of it"


def draw(charts: Sequence[Chart], folder: Path, prefix: str = "") -> list[Path]:
    """The charts as PNG files in `folder`."""
    from penstock.plugins import draw_chart  # noqa: PLC0415 - drawing loads only when it is used

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{prefix}{chart.name}.png" for chart in charts]
    for chart, path in zip(charts, paths, strict=True):
        draw_chart(chart, path)
    return paths


def head(parts: Sequence[PagePart]) -> str:
    quick = [part.finding.experiment.name for part in parts if part.finding.quick]
    notes = f"\n{SHORTENED}{', '.join(quick)}.\n" if quick else ""
    return f"""# Results

    penstock dev experiment --all -o out/experiments
    penstock dev experiment page out/experiments docs/results-live -o docs/results.md

These are the evaluations of the published systems, run again. Nearly all of it is simulated: it tests whether the
published rules, as this project reads them, give the published results. It does not test how fast a cluster is.
Sections that end in -live ran on Spark, at a small scale on a machine with two cores, once each. The page is made by
the commands above, from one file for every case; those of live cases are in `docs/results-live`, published values in
`src/penstock_lab/published`, each with its place in the document. A line counts as *agrees* only if it could have
failed: what models or cases were made or calibrated from, copies of one constant, choices made with the answer in view
and models compared with themselves are *not comparable*, with the reason; a least or a most is judged against that end
of a published range. A published algorithm that is run again is never *better*. If a document leaves a part of
the set-up open, it was chosen here; each section lists its choices and what could not be repeated. Without the
sections on our own policies, which are only compared with published ones in the same simulation, the page had
{COUNTED_BEFORE} before these rules,
and has {_totals(parts)} now.
{notes}
| experiment | repeats | {" | ".join(Agreement)} |
|---|---|{"---:|" * len(Agreement)}
{chr(10).join(part.row for part in parts)}
"""


def _totals(parts: Sequence[PagePart]) -> str:
    """Return the sums over the sections that repeat a publication: "3 agrees, 1 differs, ..."."""
    lines = [line for part in parts if not part.finding.experiment.own for line in part.finding.lines]
    return ", ".join(f"{count} {verdict}" for verdict, count in counted(lines).items())


def section(finding: Finding, charts: Sequence[Chart], pictures: Sequence[str], gaps: Sequence[str] = ()) -> str:
    experiment = finding.experiment
    parts = [
        f"## {experiment.name}\n",
        f"{experiment.title}. {experiment.figures}; {len(finding.results.all):,} cases.\n",
    ]
    for chart, picture in zip(charts, pictures, strict=True):
        parts.append(f"![{cell(chart.title)}]({picture})\n")
    parts.append("| where | what | published | ours | verdict | why |\n|---|---|---|---|---|---|")
    for line in finding.lines:
        texts = (line.where, line.what, line.published, line.ours, f"**{line.verdict}**", line.why)
        parts.append("| " + " | ".join(map(cell, texts)) + " |")
    if experiment.choices:
        parts += [
            "\n### Chosen, because the document does not say\n",
            *(f"- {choice}" for choice in experiment.choices),
        ]
    if all_gaps := (*experiment.gaps, *gaps):
        parts += ["\n### What could not be reproduced, and why\n", *(f"- {gap}" for gap in all_gaps)]
    return "\n".join(parts) + "\n"


def cell(text: str) -> str:
    """Text that cannot break a table."""
    return text.replace("|", "\\|").replace("\n", " ")
