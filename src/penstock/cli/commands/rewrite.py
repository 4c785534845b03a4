"""`penstock rewrite`: heavy operators separated, busy streams fused away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption, PipelineArgument
from penstock.errors import BadInputError


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

    from penstock.dataflow.file import pipeline_document
    from penstock.files import check_writable, write_output
    from penstock.modelling.file import models_document
    from penstock.verbs import rewrite as rewriting

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
