"""`penstock dev enter` and `penstock dev link`: hosts of a cluster with `--namespaces`, and faults between them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock import BadInputError

if TYPE_CHECKING:
    from penstock.spark.clusters.local.namespaces import NamespaceNetwork
    from penstock.types import RunningCluster

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Where the cluster keeps its state; default: PENSTOCK_STATE, or the user's cache."),
]

enter_app = typer.Typer(add_completion=False, rich_markup_mode=None)
link_app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _network(cluster: RunningCluster) -> NamespaceNetwork:
    if cluster.network is None:
        raise BadInputError("this cluster has no hosts of its own; start one: penstock cluster up --namespaces")
    return cluster.network


@enter_app.command("enter", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def enter(
    command: Annotated[list[str], typer.Argument(help="What to run there, with its own options.")],
    host: Annotated[str, typer.Option("--host", help="driver, master, or a node.")] = "driver",
    folder: FolderOption = None,
) -> None:
    """Run a command on a host of a cluster that was started with --namespaces."""
    from penstock.spark.clusters.local.lifecycle import find_cluster

    cluster = find_cluster(folder)
    words = _network(cluster).command(host, command)
    os.environ["PENSTOCK_STATE"] = str(cluster.folder)
    os.execv(words[0], words)  # noqa: S606 - the command is what the user asks for


@link_app.command("link")
def link(
    host: Annotated[str, typer.Argument(help="master, driver, or a node of a cluster with --namespaces.")],
    cut: Annotated[bool, typer.Option("--cut", help="Drop every packet in both directions.")] = False,
    restore: Annotated[bool, typer.Option("--restore", help="Undo all changes of this link.")] = False,
    delay: Annotated[float, typer.Option("--delay", min=0, help="Milliseconds added to every packet it sends.")] = 0.0,
    loss: Annotated[float, typer.Option("--loss", min=0, max=100, help="Percent of its packets that get lost.")] = 0.0,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Max megabits per second it sends.")] = 0.0,
    folder: FolderOption = None,
) -> None:
    """Cut, restore, slow or narrow the network link of a host."""
    from penstock.spark.clusters.local.lifecycle import find_cluster

    network = _network(find_cluster(folder))
    if sum(map(bool, (cut, restore, delay or loss, rate))) != 1:
        raise BadInputError("expected one of --cut, --restore, --rate, or --delay and --loss")
    if cut:
        network.cut(host)
    elif restore:
        network.restore(host)
    elif rate:
        network.narrow(host, rate)
    else:
        network.slow(host, delay, loss)
    typer.echo(f"link of '{host}' {'cut' if cut else 'restored' if restore else 'changed'}")
