"""`penstock plan`: threads, slots, machines, price, a placement and a prediction."""

from __future__ import annotations

from collections import Counter
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.errors import BadInputError, RefusedError
from penstock.cli import output
from penstock.cli.vocabulary import JsonOption, ModelsOption, PipelineArgument
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR, DEFAULT_PLACER, PLACERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from penstock.planning.compare import Compared
    from penstock.planning.plan import Plan
    from penstock.planning.planner import Planner


def plan(
    pipeline: PipelineArgument,
    rate: Annotated[float, typer.Option("--rate", help="Tuples per second every source emits.")],
    allocator: Annotated[
        str | None, typer.Option("--allocator", help=f"{ALLOCATORS.listed(DEFAULT_ALLOCATOR)}.")
    ] = None,
    placer: Annotated[
        str | None,
        typer.Option(
            "--placer",
            help=f"{PLACERS.listed(DEFAULT_PLACER)}; options as rsm:demand=single-thread.",
        ),
    ] = None,
    models: ModelsOption = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", help="Place on the machines of this file; live: on what is free here now."),
    ] = None,
    catalogue: Annotated[
        str | None,
        typer.Option("--catalogue", help="Rent from azure-d (default), aws-m5, gcp-n2, or a catalogue file."),
    ] = None,
    acquisition: Annotated[
        str,
        typer.Option("--acquisition", help="cover: one machine for the remainder; exact: ever smaller ones."),
    ] = "cover",
    routing: Annotated[
        str,
        typer.Option("--routing", help="What usage and latency are predicted for: slot-aware or shuffle."),
    ] = "slot-aware",
    batch_interval_ms: Annotated[
        float,
        typer.Option("--batch-interval-ms", help="The engine's batch interval, for the latency estimate."),
    ] = 100.0,
    compare: Annotated[bool, typer.Option("--compare", help="Every allocator with every placer in one table.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Why each operator got its threads and each bundle its slot.")
    ] = False,
    current: Annotated[
        Path | None,
        typer.Option(
            "--current",
            help="The plan file of what runs: threads stay unless moving keeps more rate, or pays; exit 1 on a miss.",
        ),
    ] = None,
    move_cost: Annotated[
        float | None,
        typer.Option("--move-cost", help="With --current: what moving one thread costs, in slots (0.01)."),
    ] = None,
    utilisation: Annotated[
        float,
        typer.Option("--utilisation", help="Target utilisation; with 0.8 the plan is sized for the rate / 0.8."),
    ] = 1.0,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the placement (.png, .svg, .pdf).")] = None,
    to_file: Annotated[Path | None, typer.Option("--output", "-o", help="Write the plan file (JSON).")] = None,
    json: JsonOption = False,
) -> None:
    """What it takes to run PIPELINE at a rate."""
    from penstock.api import plans as planning
    from penstock.inputs.finders import planner_of
    from penstock.planning.compare import compare as comparing
    from penstock.planning.compare import pairs

    if compare:
        if plot or to_file or explain or current or move_cost is not None or utilisation != 1.0:
            raise BadInputError(
                "--compare prints a table of all policies: give --plot, --output, --explain, --current and "
                "--utilisation "
                "without it"
            )
        planner = planner_of(
            pipeline,
            models=models,
            cluster=cluster,
            catalogue=catalogue,
            acquisition=acquisition,
            routing=routing,
            batch_interval_ms=batch_interval_ms,
        )
        _print_comparison(planner, rate, list(comparing(planner, rate, pairs(allocator, placer))), as_json=json)
        return
    from penstock.base.files import check_writable

    if plot is not None:
        from penstock.pictures.canvas import check_ending

        check_ending(plot)
        check_writable(plot)
    if to_file is not None:
        check_writable(to_file)
        if plot is not None and plot.resolve() == to_file.resolve():
            raise BadInputError(f"--output and --plot both name {plot}")
    try:
        made = planning.plan(
            pipeline,
            rate,
            allocator=allocator,
            placer=placer,
            models=models,
            cluster=cluster,
            catalogue=catalogue,
            acquisition=acquisition,
            routing=routing,
            batch_interval_ms=batch_interval_ms,
            explain=explain,
            current=current,
            move_cost=move_cost,
            utilisation=utilisation,
        )
    except RefusedError as refused:
        if json:
            asked = {"pipeline": pipeline, "rate": rate, "allocator": allocator, "placer": placer}
            output.print_json({**asked, "refused": str(refused)})
        raise
    if to_file is not None:
        from penstock.planning.files import write_plan

        write_plan(made, to_file)
    if plot is not None:
        from penstock.pictures.drawings import draw_plan

        draw_plan(made, plot)
    if json:
        output.print_json({**made.document(), **({"reasons": _reasons(made)} if explain else {})})
    else:
        _print_all(made, [path for path in (to_file, plot) if path is not None], explain=explain)
    if current is not None and not made.keeps_rate:
        raise typer.Exit(1)


def _print_all(made: Plan, written: list[Path], *, explain: bool) -> None:
    screen = output.console()
    _print_plan(made, screen)
    if explain:
        _print_reasons(made, screen)
    for path in written:
        screen.print(f"wrote {path}")


def _print_plan(made: Plan, screen: Console) -> None:
    from penstock.base.tolerance import covers

    screen.print(
        f"{made.pipeline.name} at {output.figure(made.rate)} tuples/s, "
        f"allocator {made.allocation.allocator}, placer {made.placement.placer}\n"
    )
    screen.print(
        output.table(
            "Operators",
            ("operator", "tuples/s", "threads", "cpu in slots", "memory in slots"),
            (
                (o.name, output.figure(o.rate), f"{o.threads:,}", f"{o.cpu:.3f}", f"{o.memory:.3f}")
                for o in made.allocation.operators
            ),
        )
    )
    usage = made.prediction.slots
    screen.print(
        output.table(
            "Placement, with predicted load",
            ("slot", "cpu", "memory", "threads "),
            (
                (
                    str(slot),
                    output.share(usage[slot].cpu),
                    output.share(usage[slot].memory),
                    ", ".join(f"{name} {count}" for name, count in threads.items()),
                )
                for slot, threads in sorted(
                    made.placement.by_slot().items(),
                    key=lambda item: (made.cluster.position(item[0].node), item[0].number),
                )
            ),
            output.MOST_ROWS,
        )
    )
    sizes = Counter(node.size or f"{node.slots} slots" for node in made.cluster.nodes)
    machines = ", ".join(f"{count} x {size}" for size, count in sizes.items())
    prediction = made.prediction
    grown = f", {made.growth} added for the placer" if made.growth > 0 else ""
    bound = (
        f"at most {100 * made.gap:.0f} % above optimal"
        if made.gap is not None
        else "this one has fewer, and will not do the rate within its slots"
    )
    screen.print(
        f"slots      {made.allocation.slots} for the operators, "
        f"{made.allocation.slots_with_sources_and_sinks} with source and sink"
        f"{grown}; no plan needs fewer than {made.fewest_slots} ({bound})"
    )
    if made.utilisation < 1:
        sized = output.figure(made.sized_for)
        screen.print(f"headroom   sized for {sized} tuples/s, of which the rate is {100 * made.utilisation:.0f} %")
    screen.print(f"machines   {machines}; {output.money(made.cluster.price)} {made.currency} per hour")
    for line in _placed_rates(made):
        screen.print(f"predicted  {line}")
    forecast = made.forecast
    if forecast.max_rate is not None:
        less = "" if covers(forecast.max_rate.value, made.rate) else ", less than asked"
        slots = f"{forecast.slots:,} slot{'' if forecast.slots == 1 else 's'}"
        batches = "" if forecast.batch_rows is None else f", in batches of {forecast.batch_rows:,}"
        screen.print(
            f"predicted  {output.figure(forecast.max_rate.value)} tuples/s {forecast.engine} on {slots}{batches}{less}"
        )
    for reason in forecast.unknown:
        screen.print(f"verdict    unknown: {reason}")
    if not (prediction.unmeasured or prediction.fused_only):
        screen.print(
            f"latency    placed: {output.latencies(prediction.latency_ms)} (estimate for {prediction.routing} routing)"
        )
    if forecast.max_rate is not None:
        values = forecast.latency_values
        times = "no bound at this rate" if values is None else output.latencies(values)
        screen.print(f"latency    {forecast.engine}: {times}")
    screen.print(
        f"network    {prediction.network_cost:.2f} mean distance of a tuple's hop (0 same slot ... 3 other rack)"
    )
    if made.moves is not None:
        moved = made.moves
        screen.print(
            f"moves      {moved.moved:,} threads move, {moved.kept:,} stay, {moved.started:,} start, "
            f"{moved.stopped:,} stop"
        )
    for plan in made.considered:
        screen.print(
            f"considered {plan.name}: {output.figure(plan.rate)} tuples/s on {plan.slots:,} slots, {plan.moved:,} "
            f"threads move{' (chosen)' if plan.chosen else ''}"
        )
    if made.considered and not made.keeps_rate:
        screen.print(
            f"missed     {output.figure(made.predicted_rate)} of {output.figure(made.rate)} tuples/s: no plan by these "
            "policies keeps the rate"
        )
    for warning in made.warnings:
        screen.print(f"warning    {warning}")


def _placed_rates(made: Plan) -> Iterator[str]:
    """Yield lines about a placed run: rates by routing, or upper bounds if operators were not measured, or why it is
    impossible."""
    from penstock.base.tolerance import covers
    from penstock.dataflow.code import why_not_placed

    prediction = made.prediction
    if prediction.fused_only:
        yield why_not_placed(prediction.fused_only)
        return
    if prediction.unmeasured and not isfinite(prediction.supported.rate):
        yield f"an unknown rate placed: {', '.join(prediction.unmeasured)} not measured"
        return
    unmeasured = f", if {', '.join(prediction.unmeasured)} can do it" if prediction.unmeasured else ""
    at_most = "at most " if unmeasured else ""
    for name, supported in (("shuffle", prediction.shuffle), ("slot-aware", prediction.slot_aware)):
        ends = prediction.rate_range.get(name.replace("-", "_"))
        spread = f", between {output.figure(ends[0])} and {output.figure(ends[1])}" if ends else ""
        limit = f" (limited by {supported.bottleneck})" if supported.bottleneck else ""
        rate = output.figure(supported.rate)
        yield f"{at_most}{rate} tuples/s placed, with {name} routing{spread}{limit}{unmeasured}"
    declared = prediction.declared
    if not covers(declared.rate, made.rate):
        yield (
            f"{at_most}{output.figure(declared.rate)} tuples/s placed, with the groupings declared, less than asked "
            f"(limited by {declared.bottleneck})"
        )


def _reasons(made: Plan) -> dict[str, object]:
    return {
        "operators": {operator.name: operator.reason for operator in made.allocation.operators},
        "bundles": [
            {
                "operator": b.operator,
                "threads": b.threads,
                "node": b.slot.node,
                "slot": b.slot.number,
                "reason": b.reason,
            }
            for b in made.placement.bundles
        ],
    }


def _print_reasons(made: Plan, screen: Console) -> None:
    screen.print(
        output.table(
            "\nWhy these threads",
            ("operator", "why "),
            ((o.name, o.reason) for o in made.allocation.operators),
        )
    )
    screen.print(
        output.table(
            "Why these slots, in the order they were decided",
            ("bundle", "slot ", "why "),
            ((f"{b.operator} x {b.threads}", str(b.slot), b.reason) for b in made.placement.bundles),
            output.MOST_ROWS,
        )
    )


def _print_comparison(planner: Planner, rate: float, rows: list[Compared], *, as_json: bool) -> None:
    documents, pipeline, warnings = [row.document() for row in rows], planner.pipeline.name, list(planner.misfits())
    if as_json:
        output.print_json({"pipeline": pipeline, "rate": rate, "plans": documents, "warnings": warnings})
        return
    screen = output.console()
    screen.print(
        output.table(
            f"{pipeline} at {output.figure(rate)} tuples/s: every allocator with every placer",
            (
                "allocator",
                "placer ",
                "slots",
                "placed",
                "nodes",
                "per hour",
                "shuffle/s",
                "slot-aware/s",
                "top cpu",
                "top memory",
                "p95 ms",
                "network",
            ),
            (
                (
                    d["allocator"],
                    d["placer"],
                    str(d["slots"]["allocated_with_ends"]),
                    str(d["slots"]["placed"]),
                    str(d["nodes"]),
                    output.money(d["price_per_hour"]),
                    output.figure(d["rate"]["shuffle"]),
                    output.figure(d["rate"]["slot_aware"]),
                    output.share(d["highest_slot_cpu"]),
                    output.share(d["highest_slot_memory"]),
                    output.figure(d["latency_ms"]["p95"]),
                    f"{d['network_cost']:.2f}",
                )
                for d in documents
                if "refused" not in d
            ),
        )
    )
    for d in documents:
        if "refused" in d:
            screen.print(f"refused  {d['allocator']} + {d['placer']}: {d['refused']}")
    for warning in warnings:
        screen.print(f"warning  {warning}")
