"""`penstock capacity`: the highest rate a cluster sustains, per pair of policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption, PipelineArgument


def capacity(
    pipeline: PipelineArgument,
    cluster: Annotated[Path, typer.Option("--cluster", help="The machines there are (YAML or JSON).")],
    step: Annotated[
        float | None,
        typer.Option("--step", help="Rates tried are multiples of this: 10, or a higher power of ten for high rates."),
    ] = None,
    allocator: Annotated[str | None, typer.Option("--allocator", help="Only this allocator.")] = None,
    placer: Annotated[str | None, typer.Option("--placer", help="Only this placer.")] = None,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """The highest rate PIPELINE reaches on a cluster."""
    from penstock.cluster.file import read_cluster
    from penstock.jobs.planning import capacities, capacity_step, planner_of
    from penstock.planning.capacity import as_number
    from penstock.planning.compare import pairs

    machines = read_cluster(cluster)
    planner = planner_of(pipeline, models=models, cluster=machines)
    subject, warnings = planner.pipeline, list(planner.misfits())
    results = {}
    if step is None:
        step = capacity_step(planner, allocator, placer)
    searching = capacities(planner, step, allocator, placer)
    for _, (pair, result) in zip(output.progress(pairs(allocator, placer), "searching"), searching, strict=True):
        results[pair] = result
    if json:
        output.print_json(
            {
                "pipeline": subject.name,
                "slots": len(machines.slots),
                "step": step,
                "rates": {pair: as_number(result.allocated) for pair, result in results.items()},
                "placed": {pair: as_number(result.placed) for pair, result in results.items()},
                "predicted": {pair: result.predicted for pair, result in results.items()},
                "warnings": warnings,
            }
        )
        return
    screen = output.console()
    screen.print(
        output.table(
            f"{subject.name} on {len(machines.slots)} slots of {len(machines.nodes)} nodes, tuples/s",
            ("policies", "slots suffice up to", "placed up to", "predicted there"),
            (
                (
                    pair,
                    output.figure(result.allocated),
                    output.figure(result.placed),
                    output.figure(result.predicted),
                )
                for pair, result in results.items()
            ),
        )
    )
    for warning in warnings:
        screen.print(f"warning    {warning}")
