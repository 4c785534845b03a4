"""`penstock up` and `penstock down`: a controller on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption
from penstock.cli.store_options import StoreFileOption, StoreOption, TakeOverOption, store_url


def up(
    nodes: Annotated[int | None, typer.Option("--nodes", help="Nodes of the cluster (2).")] = None,
    slots: Annotated[int | None, typer.Option("--slots", help="Slots of every node (1).")] = None,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", help="A cluster file, instead of --nodes and --slots.")
    ] = None,
    unit_slots: Annotated[
        int | None, typer.Option("--unit-slots", help="Slots of what is shared out as one; without, a whole node.")
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="How the cluster is shared, as in `penstock share`.")
    ] = "fair-priority",
    store: StoreOption = None,
    store_file: StoreFileOption = None,
    take_over: TakeOverOption = False,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than loopback let others in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes any that is free.")] = 0,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Pipelines run in simulated time: no Spark, no Java.")
    ] = False,
    speed: Annotated[float, typer.Option("--speed", help="Simulated: so many times as fast as the clock.")] = 1.0,
    price: Annotated[float | None, typer.Option("--price", help="Of a node for an hour.")] = None,
    provider: Annotated[
        str, typer.Option("--provider", help="Where more nodes come from: local, or command:FILE (simulated only).")
    ] = "local",
    budget: Annotated[
        int | None, typer.Option("--budget", help="Nodes at most: with it they come and go by themselves.")
    ] = None,
    hourly_budget: Annotated[
        float | None, typer.Option("--hourly-budget", help="What all nodes may cost in an hour.")
    ] = None,
    idle_seconds: Annotated[
        float, typer.Option("--idle-seconds", help="With a budget: so long a node is idle before it goes.")
    ] = 600.0,
    json: JsonOption = False,
) -> None:
    """Start a controller; it answers when this returns."""
    from penstock.verbs import up as verb

    service = verb.up(
        nodes=nodes,
        slots=slots,
        cluster=cluster,
        unit_slots=unit_slots,
        policy=policy,
        store=store_url(store, store_file),
        take_over=take_over,
        host=host,
        port=port,
        simulated=simulated,
        speed=speed,
        price=price,
        provider=provider,
        budget=budget,
        hourly_budget=hourly_budget,
        idle_seconds=idle_seconds,
    )
    if json:
        output.print_json(service.document())
        return
    from penstock.verbs.connect import connect
    from penstock.verbs.dashboard import dashboard

    with connect() as controller:
        known, sharing = controller.list(), controller.policy()["sharing"]
    output.say(f"controller  {service.url}  ({len(service.nodes)} nodes)")
    output.say(f"page        {dashboard()}  (once, within ten minutes; another: penstock dashboard)")
    output.say(
        f"token       {service.token_file}  (only reading: {service.read_token_file.name}; "
        f"for attached applications: {service.attach_token_file.name}, both beside it)"
    )
    if known:
        lives = sum(pipeline["state"] != "killed" for pipeline in known)
        output.say(f"goes on     with {lives} pipelines of its store, with its nodes and policy ({sharing})")
    output.say("next        penstock submit NAME PIPELINE --rate R, penstock list, penstock down")


def down(json: JsonOption = False) -> None:
    """End the controller that `up` started; its store stays, and the next `up` goes on from it."""
    from penstock.verbs import down as verb

    ended = verb.down()
    if json:
        output.print_json({"ended": ended})
    else:
        output.say("no controller runs here" if ended is None else f"ended the controller at {ended}")
