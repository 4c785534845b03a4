"""`penstock manifests`: files for Kubernetes and YARN."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption


def manifests(
    folder: Annotated[Path, typer.Argument(help="Where to write them.")],
    manager: Annotated[str, typer.Option("--manager", help="kubernetes or yarn.")] = "kubernetes",
    name: Annotated[str, typer.Option("--name", help="Of the controller.")] = "penstock",
    application: Annotated[str, typer.Option("--application", help="Of the application.")] = "application",
    namespace: Annotated[str, typer.Option("--namespace", help="Kubernetes namespace.")] = "default",
    image: Annotated[str, typer.Option("--image", help="Container image with penstock and Spark.")] = "penstock:0.1.0",
    minimum: Annotated[int, typer.Option("--minimum", help="Executors at least.")] = 1,
    maximum: Annotated[int, typer.Option("--maximum", help="Executors at most.")] = 8,
    memory_mb: Annotated[int, typer.Option("--memory-mb", help="Of an executor.")] = 1024,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes of the controller's cluster.")] = 2,
    slots: Annotated[int, typer.Option("--slots", help="Slots of every node.")] = 4,
    resource: Annotated[
        list[str] | None, typer.Option("--resource", help="Extended resource every executor asks one of; repeatable.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write what a cluster manager is given: manifests, pod template, Spark settings."""
    from penstock.verbs.manifests import manifests as verb

    files = verb(
        folder,
        manager=manager,
        name=name,
        application=application,
        namespace=namespace,
        image=image,
        minimum=minimum,
        maximum=maximum,
        memory_mb=memory_mb,
        nodes=nodes,
        slots=slots,
        resources=tuple(resource or ()),
    )
    if json:
        output.print_json({"files": [str(path) for path in files]})
        return
    for path in files:
        output.say(str(path))
