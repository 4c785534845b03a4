"""`penstock plans`: capacity, differences, segments and rewritten pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.vocabulary import JsonOption, ModelsOption, PipelineArgument
from penstock.planning.registry import ALLOCATORS, DEFAULT_SEGMENTER, PLACERS, SEGMENTERS


def capacity(
    pipeline: PipelineArgument,
    cluster: Annotated[Path, typer.Option("--cluster", help="The machines there are (YAML or JSON).")],
    step: Annotated[
        float | None,
        typer.Option("--step", help="Rates tried are multiples of this: 10, or a higher power of ten for high rates."),
    ] = None,
    allocator: Annotated[
        str | None, typer.Option("--allocator", help=f"Only this allocator: {ALLOCATORS.listed()}.")
    ] = None,
    placer: Annotated[str | None, typer.Option("--placer", help=f"Only this placer: {PLACERS.listed()}.")] = None,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """The highest rate PIPELINE reaches on a cluster."""
    from penstock.cluster.file import read_cluster
    from penstock.inputs.finders import capacities, capacity_step, planner_of
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


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A plan file.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another plan file.")],
    json: JsonOption = False,
) -> None:
    """What changes, and which threads move, from one plan to another."""
    from penstock.api.plans import diff as diff_plans

    difference = diff_plans(before, after)
    if json:
        output.print_json(difference.document())
        return
    screen = output.console()
    document = difference.document()
    old, new = document["before"], document["after"]
    screen.print(
        output.table(
            f"{before} -> {after}",
            ("", "before", "after"),
            (
                ("pipeline", old["pipeline"], new["pipeline"]),
                ("tuples/s", output.figure(old["rate"]), output.figure(new["rate"])),
                ("policies", f"{old['allocator']}+{old['placer']}", f"{new['allocator']}+{new['placer']}"),
                ("slots", str(old["slots"]), str(new["slots"])),
                ("nodes", str(old["nodes"]), str(new["nodes"])),
                ("per hour", output.money(old["price_per_hour"]), output.money(new["price_per_hour"])),
            ),
        )
    )
    screen.print(
        output.table(
            "Threads",
            ("operator", "before", "after", "stay", "move"),
            ((o.operator, str(o.before), str(o.after), str(o.kept), str(o.moved)) for o in difference.operators),
        )
    )
    screen.print(
        output.table(
            "Slots that change",
            ("slot", "threads "),
            (
                (str(change.slot), ", ".join(f"{name} {count:+d}" for name, count in change.change.items()))
                for change in difference.slots
            ),
            output.MOST_ROWS,
        )
    )
    for title, names in (("nodes added", difference.nodes_added), ("nodes removed", difference.nodes_removed)):
        if names:
            screen.print(f"{title}: {', '.join(names)}")
    screen.print(f"{difference.threads_moved} threads move")


def segments(
    pipeline: PipelineArgument,
    segmenter: Annotated[
        str,
        typer.Option(
            "--segmenter",
            help=f"{SEGMENTERS.listed(DEFAULT_SEGMENTER)}; options as ccr:delta=2,overhead_us=20.",
        ),
    ] = "ccr",
    rate: Annotated[
        float,
        typer.Option("--rate", help="Tuples per second; matters where streams have constants or demands are declared."),
    ] = 1.0,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Cut PIPELINE into segments: groups of operators that run as one."""
    from penstock.api import plans as segmenting
    from penstock.inputs.finders import find_pipeline

    name = find_pipeline(pipeline).name
    segmentation = segmenting.segments(pipeline, segmenter=segmenter, rate=rate, models=models)
    if json:
        output.print_json(
            {
                "pipeline": name,
                "segmenter": segmentation.segmenter,
                "segments": [list(segment) for segment in segmentation.segments],
                "channels": [{"from": stream.sender, "to": stream.receiver} for stream in segmentation.channels],
            }
        )
        return
    screen = output.console()
    screen.print(f"{name}: {len(segmentation.segments)} segments by {segmentation.segmenter}\n")
    screen.print(
        output.table(
            "Segments",
            ("segment", "operators "),
            ((str(number), ", ".join(segment)) for number, segment in enumerate(segmentation.segments, start=1)),
        )
    )
    channels = ", ".join(f"{stream.sender} -> {stream.receiver}" for stream in segmentation.channels)
    screen.print(f"channels   {channels or 'none'}")


def rewrite(
    pipeline: PipelineArgument,
    rate: Annotated[float, typer.Option("--rate", help="Tuples per second every source emits.")],
    heavier: Annotated[
        float, typer.Option("--heavier", help="Separate operators with so many times the median load of the others.")
    ] = 4.0,
    busier: Annotated[
        float, typer.Option("--busier", help="Fuse the ends of streams with so many times the median bytes/s.")
    ] = 4.0,
    models: ModelsOption = None,
    to_file: Annotated[Path | None, typer.Option("--output", "-o", help="Write the new pipeline (.json).")] = None,
    models_file: Annotated[
        Path | None, typer.Option("--models-output", help="Write the models of fused operators (.json).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Separate operators and fuse streams that stand out, and say what was done."""
    from json import dumps

    from penstock.api import plans as rewriting
    from penstock.base.files import check_writable, write_output
    from penstock.dataflow.code import pipeline_document
    from penstock.modelling.library import models_document

    for path in filter(None, (to_file, models_file)):
        if path.suffix != ".json":
            raise BadInputError(f"{path}: expected a name that ends with .json")
        check_writable(path)
    if to_file is not None and models_file is not None and to_file.resolve() == models_file.resolve():
        raise BadInputError(f"--output and --models-output both name {to_file}")
    rewritten = rewriting.rewrite(pipeline, rate, heavier=heavier, busier=busier, models=models)
    document = pipeline_document(rewritten.pipeline)
    if to_file is not None:
        write_output(to_file, dumps(document, indent=1) + "\n")
    if models_file is not None:
        write_output(models_file, dumps(models_document(list(rewritten.models)), indent=1) + "\n")
    if json:
        steps = [
            {"what": str(step.what), "operators": list(step.operators), "into": list(step.into), "why": step.why}
            for step in rewritten.done
        ]
        output.print_json({"done": steps, "pipeline": document, "models": [model.name for model in rewritten.models]})
        return
    screen = output.console()
    for step in rewritten.done:
        screen.print(str(step))
    if not rewritten.done:
        screen.print("nothing stands out: the pipeline stays as it is")
