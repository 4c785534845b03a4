"""`penstock segments`: which operators run fused as one."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption, PipelineArgument


def segments(
    pipeline: PipelineArgument,
    segmenter: Annotated[
        str,
        typer.Option(
            "--segmenter", help="ccr (default), whole, ends or single; options as ccr:delta=2,overhead_us=20."
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
    from penstock.jobs.find import find_pipeline
    from penstock.verbs import segments as segmenting

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
