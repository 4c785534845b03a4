"""`penstock plans deploy`: rounds of measuring and planning until a target is met."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.vocabulary import JsonOption
from penstock.control.registry import DEFAULT_ROUND_PLANNER, ROUND_PLANNERS
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR, DEFAULT_PLACER, PLACERS, SEGMENTERS

if TYPE_CHECKING:
    from penstock.control.deployment import Deployment


def deploy(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="A built-in pipeline, a file, or module:pipeline.")
    ],
    rate: Annotated[float, typer.Option("--rate", help="Tuples/s that must be done.")],
    latency: Annotated[
        float | None, typer.Option("--latency", help="Milliseconds within which, 95th percentile.")
    ] = None,
    budget: Annotated[int, typer.Option("--budget", "--nodes", help="Nodes at most.")] = 16,
    node_slots: Annotated[int, typer.Option("--node-slots", help="Slots of a node.")] = 2,
    planner: Annotated[
        str, typer.Option("--planner", help=f"How costs are raised: {ROUND_PLANNERS.listed(DEFAULT_ROUND_PLANNER)}.")
    ] = DEFAULT_ROUND_PLANNER,
    allocator: Annotated[
        str | None, typer.Option("--allocator", help=f"Threads and slots: {ALLOCATORS.listed(DEFAULT_ALLOCATOR)}.")
    ] = None,
    placer: Annotated[
        str | None, typer.Option("--placer", help=f"Where threads go: {PLACERS.listed(DEFAULT_PLACER)}.")
    ] = None,
    segmenter: Annotated[
        str | None,
        typer.Option(
            "--segmenter",
            help=f"Which operators on one slot run as one: {SEGMENTERS.listed()}; default: ends, with packing whole.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="placed, fused, or auto: placed unless only Spark executes an operator.")
    ] = "auto",
    models: Annotated[str | None, typer.Option("--models", help="File or folder of models.")] = None,
    profiles: Annotated[
        Path | None, typer.Option("--profiles", help="Write the task profiles that were measured to this model file.")
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Execute the rounds in simulated time.")] = False,
    truth: Annotated[
        list[str] | None,
        typer.Option("--truth", help="Simulated: OPERATOR=FACTOR (or *=FACTOR) tuples really cost, of their models."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            help="Cluster whose free nodes are used: cluster, spark://...; default: Workers of this machine.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", help="Secret of the cluster at --master.")
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option("--provider", help="Source of more nodes for --master, released at the end: local, command:FILE."),
    ] = None,
    node_size: Annotated[str | None, typer.Option("--node-size", help="Size of node to ask the provider for.")] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds at most.")] = 8,
    stabilise: Annotated[float, typer.Option("--stabilise", help="Seconds before readings (published: 900).")] = 60.0,
    read: Annotated[float, typer.Option("--read", help="Seconds of readings (published: 300).")] = 30.0,
    sample_every: Annotated[
        int, typer.Option("--sample-every", min=0, help="Measure task profiles on one row in so many; 0: on none.")
    ] = 20,
    json: JsonOption = False,
) -> None:
    """Deploy a pipeline to a target (rate, latency, a budget of nodes): plan, run, measure, and plan again."""
    from penstock.api import deployment as verb
    from penstock.cli.live import listening
    from penstock.control.deployment import StopReason
    from penstock.planning.registry import DEFAULT_ALLOCATOR, DEFAULT_PLACER

    with listening(json=json) as listener:
        deployed = verb.deploy(
            pipeline,
            rate,
            latency_ms=latency,
            budget=budget,
            node_slots=node_slots,
            planner=planner,
            allocator=allocator or DEFAULT_ALLOCATOR,
            placer=placer or DEFAULT_PLACER,
            segmenter=segmenter,
            engine=engine,
            models=models,
            profiles=profiles,
            simulated=simulated,
            truth=dict(map(_factor, truth or ())),
            master=master,
            secret_file=secret_file,
            provider=provider,
            node_size=node_size,
            most_rounds=rounds,
            stabilise_seconds=stabilise,
            read_seconds=read,
            sample_every=sample_every or None,
            listener=listener,
        )
    if json:
        output.print_json(deployed.document())
    else:
        _print(deployed, planner)
    if deployed.reason is StopReason.INTERRUPTED:
        raise typer.Exit(130)
    if not deployed.met:
        raise typer.Exit(1)


def _factor(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not equals or not name or not 0.01 <= factor <= 1000:
        raise BadInputError(f"--truth '{text}': expected OPERATOR=FACTOR, the factor from 0.01 to 1000")
    return name, factor


def _print(deployed: Deployment, planner: str) -> None:
    rounds, target = deployed.rounds, deployed.target
    count = f"{len(rounds)} {'round' if len(rounds) == 1 else 'rounds'}"
    output.console().print(
        output.table(
            f"{count} to {target.rate:,.4g} rows/s, {planner} planner",
            ("round", "nodes", "threads", "offered", "rows/s", "of target", "latency ms", "node cpu", "what is short "),
            (
                (
                    str(done.number),
                    str(done.plan.nodes),
                    str(sum(done.plan.threads.values())),
                    output.figure(done.reading.offered),
                    output.figure(done.reading.throughput),
                    f"{done.reading.throughput / target.rate:.0%}",
                    output.figure(done.reading.latency_ms),
                    output.share(max(done.reading.node_cpu.values())) if done.reading.node_cpu else "-",
                    "" if done.analysis.met else done.analysis.evidence,
                )
                for done in rounds
            ),
        )
    )
    output.say(f"met        {deployed.why}" if deployed.met else f"stopped    {deployed.reason}: {deployed.why}")
    best = deployed.best
    if best is not None:
        if not deployed.met:
            reached = output.figure(best.reading.throughput)
            output.say(f"best       round {best.number}: {reached} rows/s on {best.plan.nodes} nodes")
        for row in best.plan.placement():
            threads = ", ".join(f"{name} {count}" for name, count in row["threads"].items())
            output.say(f"           {row['node']}/{row['slot']}: {threads}")
    costs = [done.reading.profiling_cost for done in rounds if done.reading.profiling_cost is not None]
    if costs:
        output.say(f"profiling  {max(costs):.2%} of the CPU of the pipeline's processes (published: 2.68 to 4.11 %)")
