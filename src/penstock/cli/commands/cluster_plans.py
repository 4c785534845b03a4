"""`penstock cluster place` and `share`: many pipelines on one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.errors import BadInputError, nearest
from penstock.cli import output
from penstock.cli.vocabulary import JsonOption
from penstock.planning.registry import DEFAULT_SHARER, DEFAULT_WHOLE_CLUSTER_PLACER, PLACERS, SHARERS

if TYPE_CHECKING:
    from penstock.planning.sharing.contract import Tenants
    from penstock.planning.sharing.share import HandOver, Sharing
    from penstock.planning.whole_cluster import ClusterPlacement


BESIDE = ("r-storm", "round-robin", "random")
"""What the chosen placer's network cost is printed beside where nothing else is asked for."""


def place(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Nodes and pipelines (JSON or YAML), or the built-in yahoo-1312-nodes."),
    ],
    placer: Annotated[
        str,
        typer.Option(
            "--placer", help=f"{PLACERS.listed(DEFAULT_WHOLE_CLUSTER_PLACER)}; one that places whole clusters."
        ),
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
    from penstock.api import cluster_plans as placing
    from penstock.base.clock import Stopwatch
    from penstock.inputs.finders import find_whole_cluster

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


MOST_SHARES = 8
"""Shares the comparison prints one by one; of more pipelines it prints the range."""
MOST_NODES = 6
"""Names of nodes in a row of the table."""


def share(
    tenants: Annotated[Path, typer.Argument(metavar="TENANTS", help="The nodes and who shares them (YAML or JSON).")],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            help=f"{SHARERS.listed(DEFAULT_SHARER)}; options as fair-priority:ratio=4.",
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", help="So many nodes instead of those of the file.")] = None,
    moves: Annotated[
        str | None, typer.Option("--moves", help="fewest (default), or published: a pipeline that changes starts anew.")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Every policy in one table.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw minimum, share and desired per pipeline (.png, .svg, .pdf).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Divide a cluster among the pipelines of TENANTS, and say which nodes and threads move."""
    from penstock.api import cluster_plans as sharing
    from penstock.inputs.finders import find_tenants
    from penstock.planning.registry import DEFAULT_SHARER
    from penstock.planning.sharing.share import Moves

    if compare:
        if policy or moves or plot:
            raise BadInputError("--compare is about all policies: give --policy, --moves and --plot without it")
        sharers = find_tenants(tenants, nodes)
        _print_comparison(sharers, sharing.compare_shares(sharers), json=json)
        return
    if plot is not None:
        from penstock.base.files import check_writable
        from penstock.pictures.canvas import check_ending

        check_ending(plot)
        check_writable(plot)
    answer = sharing.share(tenants, policy=policy or DEFAULT_SHARER, nodes=nodes, moves=moves or Moves.FEWEST)
    if plot is not None:
        from penstock.pictures.drawings import draw_shares

        draw_shares(answer, plot)
    if json:
        output.print_json(answer.document())
    else:
        _print_shares(answer, plot)
    if answer.must_wait:
        raise typer.Exit(1)


def _print_shares(answer: Sharing, plot: Path | None) -> None:
    screen = output.console()
    held = answer.handed.holdings if answer.handed else {}
    screen.print(
        output.table(
            f"{answer.tenants.capacity:,} nodes shared by {answer.shares.policy}",
            ("pipeline", "priority", "minimum", "desired", "share", "threads moved", "nodes "),
            (
                (
                    tenant.name,
                    str(tenant.priority),
                    f"{tenant.minimum:,}",
                    f"{tenant.desired:,}",
                    output.figure(answer.nodes[tenant.name]),
                    f"{held[tenant.name].moved:,}" if held else "-",
                    _names(held[tenant.name].nodes) if held else "shared with others",
                )
                for tenant in answer.tenants.pipelines
            ),
            most=output.MOST_ROWS,
        )
    )
    measures = answer.measures
    screen.print(f"minima     {measures.minima_missed:,} missed; {measures.starved:,} pipelines have nothing")
    screen.print(f"unused     {measures.unused:,g} nodes although somebody wants them")
    screen.print(f"fairness   Jain's index {measures.jain:.3f}, fairness degree {measures.fairness:.3f}")
    if answer.handed is not None and any(tenant.current for tenant in answer.tenants.pipelines):
        handed = answer.handed
        screen.print(f"moves      {handed.moved_threads:,} threads of {handed.moved_pipelines:,} pipelines")
    for name, reason in list(answer.waiting.items())[: output.MOST_ROWS]:
        screen.print(f"waiting    {name}: {reason}")
    if len(answer.waiting) > output.MOST_ROWS:
        screen.print(f"waiting    and {len(answer.waiting) - output.MOST_ROWS:,} more: --json prints all")
    if plot is not None:
        screen.print(f"written    {plot}")


def _names(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(nodes[:MOST_NODES])
    return f"{shown} and {len(nodes) - MOST_NODES:,} more" if len(nodes) > MOST_NODES else shown or "-"


def _print_comparison(tenants: Tenants, divisions: list[tuple[Sharing, HandOver | None]], *, json: bool) -> None:
    if json:
        policies = []
        for sharing, published in divisions:
            document = sharing.document()
            document["moved_threads"] = sharing.handed.moved_threads if sharing.handed else None
            document["moved_threads_published"] = published.moved_threads if published else None
            policies.append(document)
        output.print_json({"nodes": tenants.capacity, "policies": policies})
        return
    names = [tenant.name for tenant in tenants.pipelines]
    title = f"{tenants.capacity:,} nodes, {len(names):,} pipelines"
    if len(names) <= MOST_SHARES:
        title += f": {' / '.join(names)}"
    output.console().print(
        output.table(
            title,
            (
                "policy",
                "shares ",
                "minima missed",
                "starved",
                "unused",
                "Jain",
                "fairness",
                "moved",
                "as published",
            ),
            (
                (
                    sharing.shares.policy,
                    _shares(sharing),
                    f"{sharing.measures.minima_missed:,}",
                    f"{sharing.measures.starved:,}",
                    f"{sharing.measures.unused:,g}",
                    f"{sharing.measures.jain:.3f}",
                    f"{sharing.measures.fairness:.3f}",
                    f"{sharing.handed.moved_threads:,}" if sharing.handed else "-",
                    f"{published.moved_threads:,}" if published else "-",
                )
                for sharing, published in divisions
            ),
        )
    )


def _shares(sharing: Sharing) -> str:
    shares = list(sharing.nodes.values())
    if len(shares) <= MOST_SHARES:
        return " / ".join(map(output.figure, shares))
    return f"{output.figure(min(shares))} to {output.figure(max(shares))}"
