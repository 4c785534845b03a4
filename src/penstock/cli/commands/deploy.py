"""`penstock plans deploy`: rounds of measuring and planning until a target is met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.vocabulary import JsonOption
from penstock.control.registry import DEFAULT_ROUND_PLANNER, ROUND_PLANNERS
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR, DEFAULT_PLACER, PLACERS

if TYPE_CHECKING:
    from penstock.control.deployment import DeployRound


def deploy(
    pipeline: Annotated[
        str, typer.Argument(metavar="PIPELINE", help="A built-in pipeline, a file, or module:pipeline.")
    ],
    rate: Annotated[float, typer.Option("--rate", help="Tuples/s that must be done.")],
    latency: Annotated[
        float | None, typer.Option("--latency", help="Milliseconds within which, 95th percentile.")
    ] = None,
    budget: Annotated[int, typer.Option("--budget", help="Nodes at most.")] = 16,
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
    models: Annotated[str | None, typer.Option("--models", help="File or folder of models.")] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Execute the rounds in simulated time.")] = False,
    truth: Annotated[
        list[str] | None,
        typer.Option("--truth", help="Simulated: OPERATOR=FACTOR (or *=FACTOR) tuples really cost, of their models."),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="Spark: local[N], spark://..., cluster.")] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds at most.")] = 8,
    stabilise: Annotated[float, typer.Option("--stabilise", help="Seconds before readings (published: 900).")] = 60.0,
    read: Annotated[float, typer.Option("--read", help="Seconds of readings (published: 300).")] = 30.0,
    json: JsonOption = False,
) -> None:
    """Deploy a pipeline to a target: rate, latency, and a budget of nodes."""
    from penstock.api import deployment as verb
    from penstock.cli.live import listening
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
            models=models,
            simulated=simulated,
            truth=dict(map(_factor, truth or ())),
            master=master,
            most_rounds=rounds,
            stabilise_seconds=stabilise,
            read_seconds=read,
            listener=listener,
        )
    if json:
        output.print_json(deployed.document())
    else:
        _print(deployed.rounds, rate, planner)
        output.say(f"met        {deployed.why}" if deployed.met else f"stopped    {deployed.reason}: {deployed.why}")
        if not deployed.met and deployed.best is not None:
            best = deployed.best
            output.say(
                f"best       round {best.number}: {best.reading.throughput:.4g} tuples/s on {best.plan.nodes} nodes"
            )
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


def _print(rounds: tuple[DeployRound, ...], rate: float, planner: str) -> None:
    output.console().print(
        output.table(
            f"{len(rounds)} {'round' if len(rounds) == 1 else 'rounds'} to {rate:,.4g} tuples/s, {planner} planner",
            ("round", "nodes", "threads", "tuples/s", "of target", "latency ms", "what is short "),
            (
                (
                    str(done.number),
                    str(done.plan.nodes),
                    str(sum(done.plan.threads.values())),
                    output.figure(done.reading.throughput),
                    f"{done.reading.throughput / rate:.0%}",
                    output.figure(done.reading.latency_ms),
                    "" if done.analysis.met else done.analysis.evidence,
                )
                for done in rounds
            ),
        )
    )
