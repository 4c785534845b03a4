"""The page of results: tables and pictures of all experiments of a folder, made by one command."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import BadInputError
from penstock.plugins import check, check_writable, read_document, write_output
from penstock_lab.contract import Agreement, CaseResult, Results, counted
from penstock_lab.published_values import read_published
from penstock_lab.registry import EXPERIMENTS, LIVE
from penstock_lab.sweep import CaseStore, Finding, StoredCase, code_version, stored_finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.plugins import Chart, Registry
    from penstock_lab.contract import Case, Experiment

COUNTED_BEFORE = "142 agrees, 64 differs, 40 better, 29 worse, 25 not comparable"
"""Of the page before the rule that a line counts as *agrees* only if it could have failed."""
SHORTENED = "Shortened runs (`--quick`): "


def write_page(folder: Path, path: Path) -> list[Path]:
    """Write the page to `path` and its pictures to `pictures/` beside it: all files written. Experiments that the page
    has and the folder does not, such as those on Spark, stay on it as they are."""
    check_writable(path)
    before = parts_of(path.read_text("utf-8")) if path.is_file() else {}
    written = [path]
    parts = dict(before)
    for each in findings(folder):
        charts = list(each.experiment.charts(each.results, each.published))
        pictures = draw(charts, path.parent / "pictures", f"result-{each.experiment.name}-")
        gaps = kept_gaps(kept_cases(CaseStore(folder.absolute(), each.experiment.name)))
        shown = section(each, charts, [f"pictures/{picture.name}" for picture in pictures], gaps)
        parts[each.experiment.name] = PagePart(_row(each), shown, is_quick=each.quick)
        written += pictures
    in_order = {name: parts[name] for name in _names(EXPERIMENTS, LIVE) if name in parts}
    write_output(path, "\n".join([head(in_order), *(part.section for part in in_order.values())]).rstrip() + "\n")
    return written


@dataclass(frozen=True)
class PagePart:
    """What a page has of one experiment: a row of the table on top, and a section."""

    row: str
    section: str
    is_quick: bool


def parts_of(page: str) -> dict[str, PagePart]:
    """Of a page as `write_page` makes it, by experiment."""
    top, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    rows = dict(re.findall(r"^(?=\| \[([^]]+)\]\(#)(.+)$", top, flags=re.MULTILINE))
    shortened = re.search(rf"^{re.escape(SHORTENED)}(.*)\.$", top, flags=re.MULTILINE)
    quick = shortened.group(1).split(", ") if shortened else []
    by_name = {text.partition("\n")[0]: f"## {text}".rstrip() + "\n" for text in sections}
    return {name: PagePart(rows[name], text, is_quick=name in quick) for name, text in by_name.items() if name in rows}


def _names(*registries: Registry[Experiment]) -> list[str]:
    return [registry.create(name).name for registry in registries for name in registry.names()]


def _row(each: Finding) -> str:
    counts = counted(each.lines)
    cells = [f"[{each.experiment.name}](#{each.experiment.name})", each.experiment.figures]
    return "| " + " | ".join([*cells, *(str(counts[verdict]) for verdict in Agreement)]) + " |"


def findings(folder: Path) -> list[Finding]:
    """Of every experiment the folder has results of."""
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
    """What is left of the cases that were asked for, and what other code than this made."""
    gaps, kept = [], [done for done in cases if done is not None]
    if left := len(cases) - len(kept):
        gaps.append(f"{left} of {len(cases)} cases were not run.")
    if older := [_named(done.case, kept) for done in kept if done.made_by != code_version()]:
        gaps.append(f"Made by an earlier version of the code, and not run again: {'; '.join(older)}.")
    return gaps


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


def head(parts: Mapping[str, PagePart]) -> str:
    quick = [name for name, part in parts.items() if part.is_quick]
    notes = f"\n{SHORTENED}{', '.join(quick)}.\n" if quick else ""
    return f"""# Results

The evaluations of the published systems, run again on simulated clusters, and our own policies beside them; those that
end in -live ran on Spark, on two cores. This page is made from folders of results; nothing on it is written by hand:

    penstock dev experiment --all -o out/experiments
    penstock dev experiment priority --on spark --scale small -o out/experiments
    penstock dev experiment page out/experiments -o docs/results.md

Published values are in `src/penstock_lab/published/`, each with its place in the document and how it was
obtained. A verdict says how ours stands to what was published: *agrees* (the value within the tolerance named, or the
claim holds), *worse* if one way is good and ours lies the other way, *differs*, *not comparable* with the reason. A
published algorithm that is run again is never *better*: only our own policies (`ours`) can be.

A line counts as *agrees* only if it could have failed. Figures that models or cases were made from, copies of one
constant, threads chosen to give the answer and models compared with themselves are *not comparable*. A least or a most
is judged against that end of the published range. Before these rules the page counted {COUNTED_BEFORE};
now it is {_totals(parts)}.
{notes}
| experiment | repeats | {" | ".join(Agreement)} |
|---|---|{"---:|" * len(Agreement)}
{chr(10).join(part.row for part in parts.values())}
"""


def _totals(parts: Mapping[str, PagePart]) -> str:
    """Sum the table of counts: "3 agrees, 1 differs, ..."."""
    rows = [[int(cell) for cell in part.row.split("|")[3:-1]] for part in parts.values()]
    return ", ".join(
        f"{sum(column)} {verdict}" for verdict, column in zip(Agreement, zip(*rows, strict=True), strict=True)
    )


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
