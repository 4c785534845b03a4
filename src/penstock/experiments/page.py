"""The page of results: tables and pictures of all experiments of a folder, made by one command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.experiments.contract import Agreement, counted
from penstock.experiments.registry import EXPERIMENTS, LIVE
from penstock.experiments.sweep import Finding, stored_finding
from penstock.files import check_writable, write_output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.pictures.chart import Chart


def write_page(folder: Path, path: Path) -> list[Path]:
    """Write the page to `path` and its pictures to `pictures/` beside it: all files written."""
    check_writable(path)
    all_findings = findings(folder)
    written = [path]
    sections = []
    for each in all_findings:
        charts = list(each.experiment.charts(each.results, each.published))
        pictures = draw(charts, path.parent / "pictures", f"result-{each.experiment.name}-")
        sections.append(section(each, charts, [f"pictures/{picture.name}" for picture in pictures]))
        written += pictures
    write_output(path, "\n".join([head(all_findings), *sections]).rstrip() + "\n")
    return written


def findings(folder: Path) -> list[Finding]:
    """Of every experiment the folder has results of."""
    experiments = [registry.create(name) for registry in (EXPERIMENTS, LIVE) for name in registry.names()]
    there = [experiment for experiment in experiments if (folder / experiment.name / "sweep.json").is_file()]
    if not there:
        raise BadInputError(f"{folder}: no results here; run 'penstock experiment --all -o {folder}' first")
    return [stored_finding(experiment, folder) for experiment in there]


def draw(charts: Sequence[Chart], folder: Path, prefix: str = "") -> list[Path]:
    """The charts as PNG files in `folder`."""
    from penstock.pictures.charts import draw_chart  # noqa: PLC0415 - drawing loads only when it is used

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{prefix}{chart.name}.png" for chart in charts]
    for chart, path in zip(charts, paths, strict=True):
        draw_chart(chart, path)
    return paths


def head(all_findings: Sequence[Finding]) -> str:
    rows = []
    for each in all_findings:
        counts = counted(each.lines)
        cells = [f"[{each.experiment.name}](#{each.experiment.name})", each.experiment.figures]
        rows.append("| " + " | ".join([*cells, *(str(counts[verdict]) for verdict in Agreement)]) + " |")
    quick = [each.experiment.name for each in all_findings if each.quick]
    notes = f"\nShortened runs (`--quick`): {', '.join(quick)}.\n" if quick else ""
    return f"""# Results

The evaluations of the published systems, run again on simulated clusters, and our own policies beside them. This page
is made from a folder of results; nothing on it is written by hand:

    penstock experiment --all -o out/experiments
    penstock experiment page out/experiments -o docs/results.md

Published values are in `src/penstock/experiments/published/`, each with its place in the document and how it was
obtained. A verdict says how ours stands to what was published: *agrees* (the value within the tolerance named, or the
claim holds), *better* or *worse* where one way is good, *differs* where none is, *not comparable* with the reason.
{notes}
| experiment | repeats | {" | ".join(Agreement)} |
|---|---|{"---:|" * len(Agreement)}
{chr(10).join(rows)}
"""


def section(finding: Finding, charts: Sequence[Chart], pictures: Sequence[str]) -> str:
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
    if experiment.gaps:
        parts += ["\n### What could not be reproduced, and why\n", *(f"- {gap}" for gap in experiment.gaps)]
    return "\n".join(parts) + "\n"


def cell(text: str) -> str:
    """Text that cannot break a table."""
    return text.replace("|", "\\|").replace("\n", " ")
