"""`penstock place`: many pipelines with declared demands on one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption
from penstock.errors import BadInputError, nearest

if TYPE_CHECKING:
    from penstock.planning.whole_cluster import ClusterPlacement

BESIDE = ("r-storm", "round-robin", "random")
"""What the chosen placer's network cost is printed beside where nothing else is asked for."""


def place(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Nodes and pipelines (JSON or YAML), or the built-in yahoo-1312-nodes."),
    ],
    placer: Annotated[
        str, typer.Option("--placer", help="compact, r-storm, round-robin, random, packing, eft or balanced-eft.")
    ] = "compact",
    compare: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Also place with every other placer, or with none; unless said, with r-storm, round-robin and random.",
        ),
    ] = None,
    current: Annotated[
        Path | None,
        typer.Option("--current", help="What runs (as --json --full prints it): pipelines stay unless moving pays."),
    ] = None,
    move_cost: Annotated[
        float | None,
        typer.Option("--move-cost", help="With --current: network cost that moving a whole pipeline must save (0.5)."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="A node that takes no threads now; may be repeated.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say of every pipeline where it is, or what kept it out.")
    ] = False,
    why_not: Annotated[
        str | None,
        typer.Option("--why-not", metavar="PIPELINE", help="Say what kept one pipeline out, and what would let it in."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="With --json: also where every thread went.")] = False,
    json: JsonOption = False,
) -> None:
    """Place every pipeline of a whole cluster, in priority order, each all or nothing."""
    from penstock.clock import Stopwatch
    from penstock.jobs.find import find_whole_cluster
    from penstock.verbs import place as placing

    whole = placing.without_nodes(find_whole_cluster(file), exclude or ())
    asked = [request.pipeline for request, _ in whole.requests] if explain else [why_not] if why_not else []
    if why_not is not None and why_not not in (names := [request.pipeline for request, _ in whole.requests]):
        raise BadInputError(f"--why-not: unknown pipeline '{why_not}'; {nearest(why_not, names)}")
    beside = BESIDE if compare is None else placing.whole_cluster_placers() if compare else ()
    names = [placer, *(name for name in beside if name != placer)]
    placed: list[tuple[ClusterPlacement, float]] = []
    for name in output.progress(names, "placing"):
        watch = Stopwatch()
        kept, cost = (current, move_cost) if name == placer else (None, None)
        placed.append((placing.place(whole, placer=name, current=kept, move_cost=cost), watch.seconds()))
    answer, seconds = placed[0]
    reasons = {name: placing.why_not(whole, name, answer, placer=placer) for name in asked}
    if json:
        document = _summary(answer, seconds)
        if beside:
            document["beside"] = {other.placer: _summary(other, took) for other, took in placed[1:]}
        if reasons:
            document["explain"] = {name: reason.document() for name, reason in reasons.items()}
        if full:
            document["placement"] = {
                pipeline: [
                    {"node": slot.node, "slot": slot.number, "threads": threads}
                    for slot, threads in placement.by_slot().items()
                ]
                for pipeline, placement in answer.placements.items()
            }
            document["runs"] = {name: {"pipeline": what, "rate": rate} for name, (what, rate) in whole.runs.items()}
        output.print_json(document)
    else:
        _print(placed, sum(request.threads for request, _ in whole.requests), len(whole.cluster.nodes), full=full)
        for reason in reasons.values():
            output.console().print("\n".join(reason.lines()), highlight=False, markup=False)
    if answer.refused:
        raise typer.Exit(1)


def _summary(answer: ClusterPlacement, seconds: float) -> dict[str, Any]:
    return {
        "placer": answer.placer,
        "placed": list(answer.placements),
        "refused": {pipeline: str(refusal) for pipeline, refusal in answer.refused.items()},
        "nodes_used": answer.usage.nodes_used,
        "hard_violations": answer.usage.hard_violations,
        "soft_overload": sum(answer.usage.soft_overload.values()),
        "soft_overload_by_dimension": dict(answer.usage.soft_overload),
        "nodes_overloaded": answer.usage.nodes_overloaded,
        "repair_moves": answer.repair_moves,
        "constraints_broken": answer.usage.constraints_broken,
        "network_cost": answer.network_cost,
        "network_cost_by_pairs": answer.network_cost_by_pairs,
        "network_cost_by_rate": answer.network_cost_by_rate,
        "seconds": seconds,
        **({"evicted": {name: str(each) for name, each in answer.evicted.items()}} if answer.evicted else {}),
        **({"moves": {name: moves.document() for name, moves in answer.moves.items()}} if answer.moves else {}),
    }


def _print(placed: list[tuple[ClusterPlacement, float]], threads: int, nodes: int, *, full: bool) -> None:
    screen = output.console()
    answer = placed[0][0]
    if full:
        screen.print(
            output.table(
                f"Pipelines placed by {answer.placer}",
                ("pipeline", "threads", "slots", "nodes", "network cost"),
                (
                    (
                        pipeline,
                        f"{sum(bundle.threads for bundle in placement.bundles):,}",
                        f"{len(placement.by_slot()):,}",
                        f"{len({slot.node for slot in placement.by_slot()}):,}",
                        f"{answer.network_costs[pipeline]:.3f}",
                    )
                    for pipeline, placement in answer.placements.items()
                ),
            )
        )
    screen.print(
        output.table(
            f"{len(answer.placements) + len(answer.refused)} pipelines, {threads:,} threads, {nodes:,} nodes",
            (
                "placer",
                "placed",
                "refused",
                "nodes used",
                "hard violations",
                "soft overload ",
                "nodes overloaded",
                "network cost",
                "by pairs",
                "seconds",
            ),
            (
                (
                    other.placer,
                    str(len(other.placements)),
                    str(len(other.refused)),
                    f"{other.usage.nodes_used:,}",
                    str(other.usage.hard_violations),
                    ", ".join(f"{amount:,.0f} {name}" for name, amount in other.usage.soft_overload.items()) or "none",
                    f"{other.usage.nodes_overloaded:,}",
                    f"{other.network_cost:.4f}",
                    f"{other.network_cost_by_pairs:.4f}",
                    f"{took:.2f}",
                )
                for other, took in placed
            ),
        )
    )
    if answer.moves:
        kept, moved, started, stopped = (
            sum(getattr(moves, what) for moves in answer.moves.values())
            for what in ("kept", "moved", "started", "stopped")
        )
        screen.print(f"moves  {moved:,} threads move, {kept:,} stay, {started:,} start, {stopped:,} stop")
    for eviction in answer.evicted.values():
        screen.print(f"evicted  {eviction}")
    for pipeline, refusal in answer.refused.items():
        screen.print(f"refused  {pipeline}: {refusal}")
