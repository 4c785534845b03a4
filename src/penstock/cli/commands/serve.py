"""`penstock serve`: the controller in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.store_options import StoreFileOption, StoreOption, TakeOverOption, store_url
from penstock.errors import BadInputError


def serve(
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes of the cluster.")] = 2,
    slots: Annotated[int, typer.Option("--slots", help="Slots of every node.")] = 1,
    unit_slots: Annotated[
        int | None, typer.Option("--unit-slots", help="Slots of what is shared out as one; without, a whole node.")
    ] = None,
    policy: Annotated[str, typer.Option("--policy", help="How the cluster is shared.")] = "fair-priority",
    store: StoreOption = None,
    store_file: StoreFileOption = None,
    take_over: TakeOverOption = False,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port.")] = 8080,
    simulated: Annotated[bool, typer.Option("--simulated", help="Pipelines run in simulated time.")] = False,
    speed: Annotated[float, typer.Option("--speed", help="Simulated: so many times as fast as the clock.")] = 1.0,
    price: Annotated[float | None, typer.Option("--price", help="Simulated: of a node for an hour.")] = None,
    answer_to: Annotated[
        list[str] | None, typer.Option("--answer-to", help="A name others reach it by; repeatable.")
    ] = None,
    token_folder: Annotated[
        Path | None, typer.Option("--token-folder", help="Folder with the files token, read-token and attach-token.")
    ] = None,
) -> None:
    """Run a controller in the foreground until it is ended; `penstock up` starts one that stays."""
    if not simulated:
        raise BadInputError("serve: only with --simulated; `penstock up` starts a cluster and its controller")
    from penstock.verbs.serve import serve as verb

    verb(
        nodes=nodes,
        slots=slots,
        unit_slots=unit_slots,
        policy=policy,
        store=store_url(store, store_file),
        take_over=take_over,
        host=host,
        port=port,
        speed=speed,
        price=price,
        answer_to=tuple(answer_to or ()),
        token_folder=token_folder,
    )
