"""`penstock share`: who gets how much of one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from penstock.sharing.handover import HandOver
    from penstock.sharing.share import Sharing
    from penstock.sharing.tenants import Tenants

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
            help="As published: shared, isolation, static-priority, dynamic-priority, max-min. Better: fair-priority "
            "(default), fair-max-min, dominant-fair; options as fair-priority:ratio=4.",
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
    from penstock.jobs.find import find_tenants
    from penstock.sharing.handover import Moves
    from penstock.sharing.registry import DEFAULT_SHARER
    from penstock.verbs import share as sharing

    if compare:
        if policy or moves or plot:
            raise BadInputError("--compare is about all policies: give --policy, --moves and --plot without it")
        sharers = find_tenants(tenants, nodes)
        _print_comparison(sharers, sharing.compare_shares(sharers), json=json)
        return
    if plot is not None:
        from penstock.files import check_writable
        from penstock.pictures.canvas import check_ending

        check_ending(plot)
        check_writable(plot)
    answer = sharing.share(tenants, policy=policy or DEFAULT_SHARER, nodes=nodes, moves=moves or Moves.FEWEST)
    if plot is not None:
        from penstock.pictures.shares import draw_shares

        draw_shares(answer, plot)
    if json:
        output.print_json(answer.document())
    else:
        _print(answer, plot)
    if answer.must_wait:
        raise typer.Exit(1)


def _print(answer: Sharing, plot: Path | None) -> None:
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
