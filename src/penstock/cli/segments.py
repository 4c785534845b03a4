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
    from penstock import api

    name = api.find_pipeline(pipeline).name
    found = api.segments(pipeline, segmenter=segmenter, rate=rate, models=models)
    if json:
        output.print_json(
            {
                "pipeline": name,
                "segmenter": found.segmenter,
                "segments": [list(segment) for segment in found.segments],
                "channels": [{"from": stream.sender, "to": stream.receiver} for stream in found.channels],
            }
        )
        return
    screen = output.console()
    screen.print(f"{name}: {len(found.segments)} segments by {found.segmenter}\n")
    screen.print(
        output.table(
            "Segments",
            ("segment", "operators "),
            ((str(number), ", ".join(segment)) for number, segment in enumerate(found.segments, start=1)),
        )
    )
    channels = ", ".join(f"{stream.sender} -> {stream.receiver}" for stream in found.channels)
    screen.print(f"channels   {channels or 'none'}")
