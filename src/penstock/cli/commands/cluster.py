"""`penstock cluster`: a real Spark standalone cluster, on this machine or machine by machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.vocabulary import JsonOption, make_group

if TYPE_CHECKING:
    from penstock.spark.clusters.local.lifecycle import ClusterStatus, RunningCluster

cluster_app = make_group("Start, watch and end a Spark standalone cluster; place pipelines on a cluster and share it.")

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Where the cluster keeps its state; default: PENSTOCK_STATE, or the user's cache."),
]
HostOption = Annotated[str, typer.Option("--host", help="Address to bind to, and to be reached at.")]
SecretOption = Annotated[
    Path | None,
    typer.Option("--secret-file", help="Let in only those who know the contents of this file; all machines need it."),
]
OpenOption = Annotated[
    bool, typer.Option("--open", help="Ask for no secret: whoever reaches the port runs code as you.")
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
        bool,
        typer.Option(
            "--authenticate/--open",
            help="Let in only sessions that know the cluster's secret, or everybody who reaches the port.",
        ),
    ] = True,
    namespaces: Annotated[
        bool,
        typer.Option("--namespaces", help="Every node a host with its own address: network namespaces, root only."),
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds until starting is given up.")] = 120.0,
    folder: FolderOption = None,
    json: JsonOption = False,
) -> None:
    """Start a Master and a Worker for every node on this machine; they go on when the command ends."""
    from penstock.spark.clusters.local.lifecycle import cluster_up, shortfalls

    with output.console(stderr=True).status("starting Spark's Master and Workers", spinner="line"):
        state = cluster_up(
            nodes,
            slots,
            memory_mb=memory,
            racks=racks,
            cluster=cluster,
            folder=folder,
            authenticate=authenticate,
            namespaces=namespaces,
            patience=timeout,
        )
    notes = shortfalls(state)
    if not state.authenticate:
        _warn_of_open_doors(state.master_url)
    if json:
        output.print_json({**state.model_dump(mode="json"), "cluster_file": str(state.cluster_file), "notes": notes})
        return
    _print_up(state, notes)


def _warn_of_open_doors(where: str) -> None:
    output.complain(f"warning: {where} is OPEN: it asks for no secret, and whoever reaches it runs code as you")


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
    if state.network is not None:
        hosts = ", ".join(f"{host} {state.network.address(host)}" for host in state.network.hosts)
        screen.print(f"hosts    {hosts}", soft_wrap=True)
        screen.print("note     the driver is a host too: penstock dev enter COMMAND... runs a command there")


@cluster_app.command("status")
def status(folder: FolderOption = None, json: JsonOption = False) -> None:
    """Nodes, their slots and processes, and what runs on them. Exit code 1 if a node or the Master is dead."""
    from penstock.spark.clusters.local.lifecycle import cluster_status

    running = cluster_status(folder)
    if json:
        output.print_json(running.document())
    else:
        _print_status(running)
    if not running.healthy:
        output.complain(f"error: {complaint(running)}")
        raise typer.Exit(1)


def complaint(running: ClusterStatus) -> str:
    """Return the trouble in one line."""
    if not running.master_alive:
        return f"the Master at {running.master_url} does not answer"
    many = len(running.dead) > 1
    return f"node{'s' if many else ''} {', '.join(running.dead)} {'are' if many else 'is'} dead"


def _print_status(running: ClusterStatus) -> None:
    screen = output.console()
    screen.print(f"master   {running.master_url} ({'alive' if running.master_alive else 'dead'})")
    screen.print(f"web      {running.web_url}")
    screen.print(f"secret   {'asked for' if running.authenticate else 'NONE: whoever reaches it runs code as you'}\n")
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
                for node in running.nodes
            ),
        )
    )
    if running.applications:
        screen.print(
            output.table(
                "Applications",
                ("application", "name ", "state "),
                ((application.id, application.name, application.state) for application in running.applications),
            )
        )
    else:
        screen.print("no application runs")


@cluster_app.command("down")
def down(folder: FolderOption = None) -> None:
    """End the cluster: Workers with their executors, then the Master. Nothing is left but the logs."""
    from penstock.base.state_folder import state_folder
    from penstock.spark.clusters.local.lifecycle import cluster_down

    home = state_folder(folder)
    ended = cluster_down(home)
    output.say(f"ended the cluster of {home}" if ended else f"no cluster runs in {home}: nothing to end")


@cluster_app.command("master")
def master(
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where Workers and sessions connect.")] = 7077,
    web_port: Annotated[int, typer.Option("--web-port", min=1, max=65535, help="Its web page.")] = 8080,
    secret_file: SecretOption = None,
    open_to_all: OpenOption = False,
) -> None:
    """Run one Master in the foreground, for a cluster of several machines."""
    from penstock.spark.clusters.local.foreground import run_master

    _check_door(secret_file, f"spark://{host}:{port}", open_to_all=open_to_all)
    run_master(host, port, web_port, secret_file)


@cluster_app.command("worker")
def worker(
    master_url: Annotated[str, typer.Option("--master", help="spark://host:port of the Master.")],
    node: Annotated[str, typer.Option("--node", help="The node's name, as plans use it.")],
    slots: Annotated[int, typer.Option("--slots", min=1, help="Slots it offers.")],
    memory: MemoryOption = None,
    rack: Annotated[str | None, typer.Option("--rack", help="Rack the node stands in.")] = None,
    host: HostOption = "127.0.0.1",
    secret_file: SecretOption = None,
    open_to_all: OpenOption = False,
) -> None:
    """Run the Worker of one node in the foreground, for a cluster of several machines."""
    from penstock.spark.clusters.local.foreground import run_worker

    _check_door(secret_file, f"the Worker of '{node}'", open_to_all=open_to_all)
    run_worker(master_url, node, slots, memory, host, secret_file, rack)


def _check_door(secret_file: Path | None, what: str, *, open_to_all: bool) -> None:
    """A secret, or the express wish to have none."""
    if (secret_file is None) != open_to_all:
        raise BadInputError(
            "give --secret-file FILE, the same on all machines (openssl rand -hex 32 makes one), "
            "or --open to let everybody in"
        )
    if open_to_all:
        _warn_of_open_doors(what)
