"""`penstock cluster`: a real Spark standalone cluster, on this machine or machine by machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption

if TYPE_CHECKING:
    from penstock.spark.standalone import ClusterStatus, RunningCluster

cluster_app = typer.Typer(
    help="Start, watch and end a Spark standalone cluster: one Worker for every node.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Where the cluster keeps its state; default: PENSTOCK_STATE, or the user's cache."),
]
HostOption = Annotated[str, typer.Option("--host", help="Address to bind to, and to be reached at.")]
SecretOption = Annotated[
    Path | None,
    typer.Option("--secret-file", help="Let in only those who know the contents of this file."),
]
MemoryOption = Annotated[float | None, typer.Option("--memory", help="MB of one slot; default 3584.")]


@cluster_app.command("up")
def up(
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="So many nodes, n1, n2, ...")] = None,
    slots: Annotated[int | None, typer.Option("--slots", min=1, help="Slots of each.")] = None,
    memory: MemoryOption = None,
    racks: Annotated[int | None, typer.Option("--racks", min=1, help="Racks to spread them over; default 1.")] = None,
    cluster: Annotated[Path | None, typer.Option("--cluster", help="The nodes of this file instead.")] = None,
    authenticate: Annotated[
        bool, typer.Option("--authenticate", help="Let in only sessions that know the cluster's secret.")
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds until starting is given up.")] = 120.0,
    folder: FolderOption = None,
    json: JsonOption = False,
) -> None:
    """Start a Master and a Worker for every node on this machine; they go on when the command ends."""
    from rich.console import Console

    from penstock.spark.standalone import cluster_up, shortfalls

    errors = Console(stderr=True, markup=False)
    with errors.status("starting Spark's Master and Workers", spinner="line"):
        state = cluster_up(
            nodes,
            slots,
            memory_mb=memory,
            racks=racks,
            cluster=cluster,
            folder=folder,
            authenticate=authenticate,
            patience=timeout,
        )
    notes = shortfalls(state)
    if json:
        output.print_json({**state.model_dump(mode="json"), "cluster_file": str(state.cluster_file), "notes": notes})
        return
    _print_up(state, notes)


def _print_up(state: RunningCluster, notes: list[str]) -> None:
    screen = output.console()
    racks = len({node.rack for node in state.nodes})
    screen.print(f"master   {state.master_url}")
    screen.print(f"web      {state.web_url}")
    screen.print(f"nodes    {len(state.nodes)} in {racks} rack{'s' if racks > 1 else ''}, {state.slots} slots in all")
    screen.print(f"file     {state.cluster_file}", soft_wrap=True)
    screen.print(f"logs     {state.log_folder}", soft_wrap=True)
    for note in notes:
        screen.print(f"note     {note}")


@cluster_app.command("status")
def status(folder: FolderOption = None, json: JsonOption = False) -> None:
    """Nodes, their slots and processes, and what runs on them. Exit code 1 if a node or the Master is dead."""
    from penstock.spark.standalone import cluster_status

    found = cluster_status(folder)
    if json:
        output.print_json(found.document())
    else:
        _print_status(found)
    if not found.healthy:
        typer.echo(f"error: {complaint(found)}", err=True)
        raise typer.Exit(1)


def complaint(found: ClusterStatus) -> str:
    """What is wrong, in one line."""
    if not found.master_alive:
        return f"the Master at {found.master_url} does not answer"
    many = len(found.dead) > 1
    return f"node{'s' if many else ''} {', '.join(found.dead)} {'are' if many else 'is'} dead"


def _print_status(found: ClusterStatus) -> None:
    screen = output.console()
    screen.print(f"master   {found.master_url} ({'alive' if found.master_alive else 'dead'})")
    screen.print(f"web      {found.web_url}\n")
    screen.print(
        output.table(
            "Nodes",
            ("node", "rack ", "state ", "slots", "used", "free", "pid", "process "),
            (
                (
                    node.name,
                    node.rack,
                    node.state,
                    str(node.slots),
                    str(node.used),
                    str(node.free),
                    str(node.pid or "-"),
                    "runs" if node.process_alive else "gone",
                )
                for node in found.nodes
            ),
        )
    )
    if found.applications:
        screen.print(
            output.table(
                "Applications",
                ("application", "name ", "state "),
                ((one.id, one.name, one.state) for one in found.applications),
            )
        )
    else:
        screen.print("no application runs")


@cluster_app.command("down")
def down(folder: FolderOption = None) -> None:
    """End the cluster: Workers with their executors, then the Master. Nothing is left but the logs."""
    from penstock.spark.cluster_state import state_folder
    from penstock.spark.standalone import cluster_down

    home = state_folder(folder)
    ended = cluster_down(home)
    typer.echo(f"ended the cluster of {home}" if ended else f"no cluster runs in {home}: nothing to end")


@cluster_app.command("master")
def master(
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where Workers and sessions connect.")] = 7077,
    web_port: Annotated[int, typer.Option("--web-port", min=1, max=65535, help="Its web page.")] = 8080,
    secret_file: SecretOption = None,
) -> None:
    """Run one Master in the foreground, for a cluster of several machines."""
    from penstock.spark.foreground import run_master

    run_master(host, port, web_port, secret_file)


@cluster_app.command("worker")
def worker(
    master_url: Annotated[str, typer.Option("--master", help="spark://host:port of the Master.")],
    node: Annotated[str, typer.Option("--node", help="The node's name, as plans use it.")],
    slots: Annotated[int, typer.Option("--slots", min=1, help="Slots it offers.")],
    memory: MemoryOption = None,
    host: HostOption = "127.0.0.1",
    secret_file: SecretOption = None,
) -> None:
    """Run the Worker of one node in the foreground, for a cluster of several machines."""
    from penstock.spark.foreground import run_worker

    run_worker(master_url, node, slots, memory, host, secret_file)
