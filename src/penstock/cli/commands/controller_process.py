"""`penstock controller up`, `down`, `serve`, `dashboard`, `repair` and `manifests`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.vocabulary import JsonOption, StoreFileOption, StoreOption, TakeOverOption, store_url
from penstock.control.registry import DEFAULT_PROVIDER, NODE_PROVIDERS
from penstock.planning.registry import DEFAULT_SHARER, SHARERS

if TYPE_CHECKING:
    from penstock.control.store.repair import StoreRepair


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
        str, typer.Option("--policy", help=f"How the cluster is shared: {SHARERS.listed()}.")
    ] = DEFAULT_SHARER,
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
        str,
        typer.Option(
            "--provider",
            help=f"Source of more nodes: {NODE_PROVIDERS.listed(DEFAULT_PROVIDER)}; options follow a colon, as "
            "command:FILE. All but local need --simulated.",
        ),
    ] = DEFAULT_PROVIDER,
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
    from penstock.api import controller as verb

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
    from penstock.api.live import connect, dashboard

    with connect() as controller:
        known, sharing = controller.list(), controller.policy()["sharing"]
    output.say(f"controller  {service.url}  ({len(service.nodes)} nodes)")
    output.say(f"page        {dashboard()}  (once, within ten minutes; another: penstock controller dashboard)")
    output.say(
        f"token       {service.token_file}  (only reading: {service.read_token_file.name}; "
        f"for attached applications: {service.attach_token_file.name}, both beside it)"
    )
    if known:
        lives = sum(pipeline["state"] != "killed" for pipeline in known)
        output.say(f"goes on     with {lives} pipelines of its store, with its nodes and policy ({sharing})")
    output.say(
        "next        penstock pipelines submit NAME PIPELINE --rate R, penstock pipelines list, "
        "penstock controller down"
    )


def down(json: JsonOption = False) -> None:
    """End the controller that `up` started; its store stays, and the next `up` goes on from it."""
    from penstock.api import controller as verb

    ended = verb.down()
    if json:
        output.print_json({"ended": ended})
    else:
        output.say("no controller runs here" if ended is None else f"ended the controller at {ended}")


def serve(
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes of the cluster.")] = 2,
    slots: Annotated[int, typer.Option("--slots", help="Slots of every node.")] = 1,
    unit_slots: Annotated[
        int | None, typer.Option("--unit-slots", help="Slots of what is shared out as one; without, a whole node.")
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help=f"How the cluster is shared: {SHARERS.listed()}.")
    ] = DEFAULT_SHARER,
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
    """Run a controller in the foreground until it is ended; `penstock controller up` starts one that stays."""
    if not simulated:
        raise BadInputError(
            "serve: only with --simulated; `penstock controller up` starts a cluster and its controller"
        )
    from penstock.api.controller import serve as verb

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


def dashboard(
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Whoever opens it may look and change nothing.")
    ] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
    json: JsonOption = False,
) -> None:
    """Print a link to the controller's page; it logs one browser in, within ten minutes."""
    from penstock.api.live import dashboard as verb

    link = verb(read_only=read_only)
    if open_it:
        import webbrowser

        webbrowser.open(link)
    if json:
        output.print_json({"link": link})
    else:
        output.say(link)


def repair(
    store: StoreOption = None,
    store_file: StoreFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what can be read and what cannot.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a new store from the rows of a damaged one that can be read, and list the others. The damaged one is kept
    under another name. Exit code 1: nothing can be read."""
    from penstock.api.controller import repair_store

    result = repair_store(store_url(store, store_file), dry_run=dry_run)
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.nothing_readable:
        raise typer.Exit(1)


def _print(result: StoreRepair) -> None:
    screen = output.console()
    if result.rows:
        counts = ((name, str(count)) for name, count in sorted(result.rows.items()))
        screen.print(output.table("Readable", ("table", "rows"), counts))
    if result.faults:
        faults = ((fault.table, fault.row or "-", fault.reason) for fault in result.faults)
        screen.print(output.table("Not readable", ("table", "row ", "reason "), faults, output.MOST_ROWS))
    if result.nothing_readable:
        output.say(f"nothing can be read from {result.store}: restore a copy, or remove it to start anew")
    elif not result.faults:
        output.say(f"{result.store} is not damaged: left as it is")
    elif result.damaged is None:
        output.say(f"{result.store} would be written anew without {len(result.faults)} of its parts")
    else:
        output.say(f"{result.store} was written anew; the damaged one is {result.damaged}")
        if any(fault.table in {"pipelines", "submissions", "holdings"} for fault in result.faults):
            output.say("drivers of pipelines that are not readable are unknown to the controller: end them by hand")


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
    from penstock.api.clusters import manifests as verb

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
