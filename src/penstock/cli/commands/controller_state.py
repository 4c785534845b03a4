"""The commands about a controller: nodes, policy, events, decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.controller_access import TokenFileOption, UrlOption, controller, warn_of_trouble
from penstock.cli.reports import plan_change_lines
from penstock.cli.vocabulary import JsonOption
from penstock.planning.registry import ALLOCATORS, PLACERS, SEGMENTERS, SHARERS

if TYPE_CHECKING:
    from collections.abc import Mapping

PipelineOption = Annotated[str | None, typer.Option("--pipeline", help="Only of this one.")]
LastOption = Annotated[int, typer.Option("--last", help="So many of the newest.")]


def policy(
    sharing: Annotated[
        str | None, typer.Argument(help=f"Set this policy ({SHARERS.listed()}); without one, show the present policy.")
    ] = None,
    rescheduling: Annotated[
        str | None,
        typer.Option(
            "--rescheduling", help="live, unless said; or documented: deactivate, drain, reschedule, activate."
        ),
    ] = None,
    placer: Annotated[
        str | None, typer.Option("--placer", help=f"Places pipelines that name none: {PLACERS.listed()}, or default.")
    ] = None,
    allocator: Annotated[
        str | None,
        typer.Option(
            "--allocator", help=f"Decides the threads of pipelines that name none: {ALLOCATORS.listed()}, or default."
        ),
    ] = None,
    segmenter: Annotated[
        str | None,
        typer.Option(
            "--segmenter", help=f"Joins operators of pipelines that name none: {SEGMENTERS.listed()}, or default."
        ),
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Show or set how the cluster is shared, and by what pipelines are planned that do not say so themselves."""
    if rescheduling is not None and sharing is None:
        raise BadInputError("--rescheduling: name the policy it belongs to")
    named = {"rescheduling": rescheduling, "placer": placer, "allocator": allocator, "segmenter": segmenter}
    with controller(url, token_file) as client:
        held = client.policy(sharing, **{name: value for name, value in named.items() if value is not None})
    if json:
        output.print_json(held)
    else:
        output.say(
            f"{held['sharing']}, {held['rescheduling']} rescheduling, level {held['default_priority']} by default; "
            f"planned by allocator {held['allocator']}, placer {held['placer']}, segmenter {held['segmenter']}"
        )


def nodes(
    add: Annotated[int | None, typer.Option("--add", help="Ask for so many more.")] = None,
    release: Annotated[
        str | None, typer.Option("--release", help="Let this one go; what runs there moves first.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """List the nodes of the controller's cluster, ask for more, or let one go."""
    with controller(url, token_file) as client:
        if add is not None:
            client.add_nodes(add)
        if release is not None:
            client.release_node(release)
        rows: list[dict[str, Any]] = client.nodes()
        warn_of_trouble(client)
    if json:
        output.print_json(rows)
        return
    names = list(dict.fromkeys(name for node in rows for name in node.get("resources", {})))
    output.console().print(
        output.table(
            f"{len(rows):,} nodes",
            ("node", "rack ", "state ", "slots", "free", *(f"{name} free" for name in names), "held by "),
            (
                (
                    node["name"],
                    node["rack"],
                    node["state"],
                    str(node["slots"]),
                    str(node["free"]),
                    *(_amounts(node["resources"].get(name)) for name in names),
                    ", ".join(_holders(node)),
                )
                for node in rows
            ),
            most=output.MOST_ROWS,
        )
    )


def _amounts(resource: Mapping[str, float | None] | None) -> str:
    """Free amount of a node's capacity, and the demand by the models if it is known: `100/200 (80 needed)`."""
    if resource is None:
        return "-"
    free, capacity, demand = (resource[key] for key in ("free", "capacity", "demand"))
    shown = f"{'?' if free is None else f'{free:g}'}/{capacity:g}"
    return shown if not demand else f"{shown} ({demand:.0f} needed)"


def _holders(node: Mapping[str, Any]) -> list[str]:
    """Pipelines, and other applications with their ids."""
    others = {f"{each['name']} ({each['application']})" for each in node.get("holders", ()) if not each["pipeline"]}
    return [*node["pipelines"], *sorted(others)]


def events(
    pipeline: PipelineOption = None,
    last: LastOption = 40,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Print what happened, the newest last."""
    with controller(url, token_file) as client:
        rows: list[dict[str, Any]] = client.events(pipeline)
    if json:
        output.print_json(rows)
        return
    output.console().print(
        output.table(
            f"the last {min(last, len(rows)):,} of {len(rows):,} events",
            ("at", "subject ", "kind ", "from ", "to ", "why "),
            (
                (_at(row), row["subject"], row["kind"], row["from"] or "", row["to"] or "", row["why"])
                for row in rows[-last:]
            ),
        )
    )


def decisions(
    pipeline: PipelineOption = None,
    last: LastOption = 20,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Print what was decided and why, and what was not and why not; the newest last."""
    with controller(url, token_file) as client:
        rows: list[dict[str, Any]] = client.decisions(pipeline)
    if json:
        output.print_json(rows)
        return
    for row in rows[-last:]:
        whom = row["pipeline"] or "all"
        output.say(f"{_at(row)}  {whom}: {row['kind']} {row['from']} -> {row['to']}: {row['why']}")
        for other in row["rejected"]:
            output.say(f"          not {other['alternative']}: {other['why']}")
        for line in plan_change_lines(row["expected"].get("plan")):
            output.say(f"          {line}")
        if row["overhead"]:
            taken = row["overhead"]
            output.say(
                f"          took {taken['total_s']:.2f} s: {taken['drained_s']:.2f} drained, "
                f"{taken['placed_s']:.2f} placed, {taken['first_tuple_s']:.2f} first tuple"
            )


def _at(row: dict[str, Any]) -> str:
    from penstock.base.clock import time_of_day

    return time_of_day(row["at"])
