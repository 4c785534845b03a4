"""`penstock dev experiment`: the published evaluations, run again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import BadInputError
from penstock.plugins import JsonOption, console, missing_package, print_json, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_lab.sweep import Finding

FolderOption = Annotated[
    Path, typer.Option("-o", "--output", help="The folder of results; what is done already stays.")
]


class Where(StrEnum):
    SIMULATION = "simulation"
    SPARK = "spark"


class Scale(StrEnum):
    SMALL = "small"


class _RunUnlessSaid(TyperGroup):
    """`penstock dev experiment NAME` is `penstock dev experiment run NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


experiment_app = typer.Typer(
    cls=_RunUnlessSaid,
    help="Run the published evaluations again: experiment NAME, --all, list, page.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@experiment_app.command("list")
def list_experiments(json: JsonOption = False) -> None:
    """The experiments, what each repeats, and how many cases it has."""
    from penstock_lab.registry import EXPERIMENTS

    experiments = [EXPERIMENTS.create(name) for name in EXPERIMENTS.names()]
    rows = [
        (experiment, len(experiment.cases(quick=False)), len(experiment.cases(quick=True)))
        for experiment in experiments
    ]
    if json:
        print_json(
            [
                {
                    "name": experiment.name,
                    "title": experiment.title,
                    "figures": experiment.figures,
                    "cases": full,
                    "quick_cases": quick,
                }
                for experiment, full, quick in rows
            ]
        )
        return
    console().print(
        table(
            f"{len(rows)} experiments",
            ("experiment", "what ", "repeats ", "cases", "with --quick"),
            (
                (experiment.name, experiment.title, experiment.figures, f"{full:,}", f"{quick:,}")
                for experiment, full, quick in rows
            ),
        )
    )


@experiment_app.command("run")
def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Experiments; list names them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter cases.")] = False,
    on: Annotated[
        Where, typer.Option("--on", help="simulation, or spark: for real, on a cluster of this machine.")
    ] = Where.SIMULATION,
    scale: Annotated[
        Scale, typer.Option("--scale", help="With --on spark: small, a half to a quarter of the size, is the only one.")
    ] = Scale.SMALL,
    most: Annotated[
        int | None, typer.Option("--cases", min=1, help="With --on spark: so many cases now, the others another time.")
    ] = None,
    folder: FolderOption = Path("out/experiments"),
    json: JsonOption = False,
) -> None:
    """Run experiments on embedded Spark, print published against ours with a verdict, and draw.

    Finished cases are kept: after Ctrl-C the same command goes on where it was.
    """
    from penstock.plugins import listening
    from penstock_lab import api as experimenting
    from penstock_lab.registry import LIVE

    if bool(names) == every:
        known = ", ".join(experimenting.known_experiments())
        raise BadInputError(f"expected names of experiments, or --all; known: {known}")
    with listening(json=json) as listener:
        if on is Where.SPARK:
            wanted = names or LIVE.names()
            findings = experimenting.run_live_experiments(
                wanted, quick=quick, folder=folder, listener=listener, most=most
            )
        elif most is not None:
            raise BadInputError("--cases goes with --on spark")
        else:
            findings = experimenting.run_experiments(names or None, quick=quick, folder=folder, listener=listener)
    pictures = {finding.experiment.name: _draw(finding) for finding in findings}
    if json:
        documents = [
            {**finding.document(), "pictures": [*map(str, pictures[finding.experiment.name])]} for finding in findings
        ]
        print_json(documents)
        return
    for finding in findings:
        _print(finding, pictures[finding.experiment.name])


@experiment_app.command()
def page(
    folders: Annotated[
        list[Path], typer.Argument(metavar="[FOLDER]...", help="Folders of results.", show_default=False)
    ] = [Path("out/experiments")],  # noqa: B006 - typer copies it
    path: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path("docs/results.md"),
) -> None:
    """Make the page of results, with pictures beside it, from one folder or several."""
    from penstock_lab import api as experimenting

    for written in experimenting.results_page(folders, path):
        console().print(f"written    {written}")


def _draw(finding: Finding) -> Sequence[Path]:
    """Nothing where matplotlib is not there: the table does not need it."""
    from importlib.util import find_spec

    from penstock_lab import api as experimenting

    return experimenting.draw_experiment(finding) if find_spec("matplotlib") else []


def _print(finding: Finding, pictures: Sequence[Path]) -> None:
    from penstock_lab.contract import counted

    screen = console()
    experiment = finding.experiment
    screen.print(
        table(
            f"{experiment.name}: {experiment.title} ({experiment.figures}){', quick' if finding.quick else ''}",
            ("where", "what ", "published ", "ours ", "verdict ", "why "),
            ((line.where, line.what, line.published, line.ours, str(line.verdict), line.why) for line in finding.lines),
        )
    )
    counts = ", ".join(f"{count} {verdict}" for verdict, count in counted(finding.lines).items() if count)
    screen.print(f"verdicts   {counts}")
    for choice in experiment.choices:
        screen.print(f"chosen     {choice}")
    for gap in experiment.gaps:
        screen.print(f"missing    {gap}")
    screen.print(f"written    {finding.folder / 'results.parquet'}")
    for picture in pictures:
        screen.print(f"written    {picture}")
    if not pictures:
        screen.print(str(missing_package("matplotlib", "drawing needs")))
