"""`penstock simulate`: plans executed in simulated time, predicted beside simulated."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption
from penstock.cli.report_lines import error_text, headline, ids_line, operators_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

    from penstock.report.simulated_result import PipelineResult, SimulatedResult


def simulate(
    plans: Annotated[
        list[Path],
        typer.Argument(metavar="PLAN...", help="Plan files; several run at once, and share the nodes they name alike."),
    ],
    load: Annotated[
        list[str] | None,
        typer.Option(
            "--load",
            help="Tuples/s of every source: 100, steps:SECONDSxRATE,..., on-off:RATE,ON,OFF (seconds), or "
            "trace:FILE.csv (columns time, rate). Once for all plans, or once for each. Default: the plan's rate.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Simulated time; with --find-max, of each trial.")] = 60.0,
    warm_up: Annotated[
        float | None, typer.Option("--warm-up", help="Seconds at the start that do not count; default: a sixth.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of everything random.")] = 0,
    arrivals: Annotated[
        str, typer.Option("--arrivals", help="constant: exactly as the load says; poisson: at random round it.")
    ] = "constant",
    service: Annotated[
        str, typer.Option("--service", help="How long tuples take: constant, or exponential round the model's mean.")
    ] = "constant",
    routing: Annotated[
        str | None, typer.Option("--routing", help="shuffle or slot-aware, for streams without another grouping.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", help="Most tuples that wait at a station; full queues stop their senders.")
    ] = None,
    in_flight: Annotated[
        int | None, typer.Option("--in-flight", help="Most tuples of a source on their way: a closed loop.")
    ] = None,
    skew: Annotated[float, typer.Option("--skew", help="Zipf exponent of the keys of streams dealt by key.")] = 0.0,
    batch_interval: Annotated[
        float | None,
        typer.Option("--batch-interval", help="Milliseconds: tuples wait for the next batch, as on Spark."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            help="same-slot=, same-node=, same-rack=, other-rack= (ms of a hop), bandwidth= (Mbit/s of a node), "
            "with commas between.",
        ),
    ] = None,
    contention: Annotated[
        bool, typer.Option("--contention/--no-contention", help="Overloaded slots and nodes slow down.")
    ] = True,
    fail: Annotated[
        list[str] | None, typer.Option("--fail", help="NODE@START[-END]: the node is down; may be repeated.")
    ] = None,
    replay: Annotated[
        float | None, typer.Option("--replay", help="Emit lost tuples again after so many seconds.")
    ] = None,
    switch: Annotated[
        list[str] | None, typer.Option("--switch", help="PLAN@SECONDS: go on with another plan; may be repeated.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain/--no-drain", help="Before a switch: finish what is on its way, or drop it.")
    ] = True,
    pause: Annotated[
        float, typer.Option("--pause", help="Seconds between the end of a drain and the first tuple on the next plan.")
    ] = 0.0,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", help="The cluster: speeds, bandwidths, racks; plans know only slots.")
    ] = None,
    mode: Annotated[
        str,
        typer.Option("--mode", help="placed: every operator where the plan says; fused: as `run` does on one machine."),
    ] = "placed",
    slots: Annotated[int | None, typer.Option("--slots", help="Fused: slots; default: those of the plan.")] = None,
    cores: Annotated[
        int | None, typer.Option("--cores", help="Fused: cores all slots share; default: one for each slot.")
    ] = None,
    batch_overhead: Annotated[
        float | None,
        typer.Option("--batch-overhead", help="Fused: ms the engine needs for any batch; default: by the models."),
    ] = None,
    find_max: Annotated[bool, typer.Option("--find-max", help="Look for the highest stable rate.")] = False,
    measured: Annotated[
        list[Path] | None,
        typer.Option("--measured", help="What `run --json` printed, to stand beside; may be repeated."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw rates, backlog, latency and CPU (.png, .svg, .pdf).")
    ] = None,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Execute plans in simulated time and report predicted beside simulated. Exit code 1 if one falls behind."""
    from penstock import simulating
    from penstock.files import check_writable
    from penstock.pictures.canvas import check_ending

    if plot is not None:
        check_ending(plot)
        check_writable(plot)
    with _bar(endless=find_max) as (progress, tell):
        result = simulating.simulate(
            plans,
            load,
            seconds=seconds,
            warm_up=warm_up,
            seed=seed,
            arrivals=arrivals,
            service=service,
            routing=routing,
            queue_limit=queue,
            in_flight=in_flight,
            skew=skew,
            batch_interval_ms=batch_interval,
            network=network,
            contention=contention,
            outages=fail or (),
            replay_seconds=replay,
            switches=switch or (),
            drain=drain,
            pause_seconds=pause,
            models=models,
            cluster=cluster,
            mode=mode,
            slots=slots,
            cores=cores,
            batch_overhead_ms=batch_overhead,
            find_max=find_max,
            measured=measured or (),
            progress=progress,
            tell=tell,
        )
    if plot is not None:
        from penstock.pictures.simulation import draw_simulation

        draw_simulation(result, plot)
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    missed = result.highest_rate is None if find_max else not result.stable
    if missed:
        raise typer.Exit(1)


@contextmanager
def _bar(*, endless: bool) -> Iterator[tuple[Callable[[float], None], Callable[[str], None]]]:
    """A bar on standard error where that is a terminal; what a search found last stands before it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task("looking for the highest stable rate" if endless else "simulating", total=1.0)
        yield (
            lambda part: shown.update(task, completed=part),
            lambda text: shown.update(task, description=text),
        )


def _print(result: SimulatedResult) -> None:
    screen = output.console()
    if result.searched:
        _print_search(result)
    if len(result.pipelines) > 1:
        screen.print(_pipelines_table(result))
    for one in result.pipelines:
        screen.print(headline(f"{one.pipeline} simulated {one.mode} on {len(one.report.slots)} slots", one.report))
        if len(result.pipelines) == 1:
            screen.print(operators_table(one.report))
            screen.print(_slots_table(one))
        screen.print(_comparison_table(one))
        _print_lines(one)
    if len(result.pipelines) > 1:
        screen.print(_nodes_table(result))
        if result.fairness:
            screen.print(f"fairness   degree {result.fairness[-1][1]:.3f} over all pipelines")
    for note in result.notes:
        screen.print(f"note       {note}")


def _print_lines(one: PipelineResult) -> None:
    screen = output.console()
    report = one.report
    limit = f" (limited by {one.predicted_bottleneck})" if one.predicted_bottleneck else ""
    error = error_text(one.rate_error)
    screen.print(f"predicted  at most {output.figure(one.predicted_rate)} tuples/s{limit}{error}")
    screen.print(f"backlog    {report.backlog:,} tuples")
    screen.print(ids_line(report))
    if not report.stable:
        screen.print(
            f"missed     {output.figure(report.sustained_rate)} of {output.figure(report.offered_rate)} tuples/s: "
            f"the bottleneck is {one.bottleneck or 'not known'}"
        )
    for note in report.notes:
        screen.print(f"note       {note}")


_ROWS = {"rate": "rate, tuples/s", "cpu": "cpu of all slots, cores"}


def _comparison_table(one: PipelineResult) -> Table:
    """Predicted, simulated and, where there is a run, measured; each error is against the column to its right."""
    measured = one.measured is not None
    columns = ["", "predicted", "simulated", "error"]
    if measured:
        columns = ["", "predicted", "simulated", "measured", "error of predicted", "error of simulated"]
    rows = []
    for name, row in one.comparison.items():
        label = _ROWS.get(name, name.replace("latency_", "latency ").replace("_ms", ", ms"))
        errors = [_percent(row["predicted_error"])]
        figures = [output.figure(row["predicted"]), output.figure(row["simulated"])]
        if measured:
            figures.append(output.figure(row["measured"]))
            errors.append(_percent(row["simulated_error"]))
        rows.append((label, *figures, *errors))
    return output.table("Predicted beside simulated", columns, rows)


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f} %"


def _slots_table(one: PipelineResult) -> Table:
    return output.table(
        "Slots",
        ("slot", "cpu predicted", "cpu", "memory MB predicted", "memory MB"),
        (
            (
                str(slot),
                output.share(one.predicted_slots[slot][0]) if slot in one.predicted_slots else "-",
                output.share(cpu),
                f"{one.predicted_slots[slot][1]:,.0f}" if slot in one.predicted_slots else "-",
                f"{memory:,.0f}",
            )
            for slot, (cpu, memory) in one.report.slots.items()
        ),
        most=output.MOST_ROWS,
    )


def _pipelines_table(result: SimulatedResult) -> Table:
    return output.table(
        f"{len(result.pipelines)} pipelines, nodes: {len(result.nodes):,}",
        ("pipeline", "offered", "sustained", "predicted at most", "p50 ms", "p99 ms", "lost", "verdict "),
        (
            (
                one.pipeline,
                output.figure(one.report.offered_rate),
                output.figure(one.report.sustained_rate),
                output.figure(one.predicted_rate),
                output.figure(one.report.latency_ms.get("p50")),
                output.figure(one.report.latency_ms.get("p99")),
                f"{one.report.audit.lost:,}",
                "stable" if one.report.stable else f"falls behind: {one.bottleneck}",
            )
            for one in result.pipelines
        ),
    )


def _nodes_table(result: SimulatedResult) -> Table:
    return output.table(
        "Nodes",
        ("node", "cpu, cores", "memory MB"),
        ((name, f"{cpu:.2f}", f"{memory:,.0f}") for name, (cpu, memory) in result.nodes.items()),
        most=output.MOST_ROWS,
    )


def _print_search(result: SimulatedResult) -> None:
    screen = output.console()
    highest = result.highest_rate
    found = "none of the rates tried" if highest is None else f"{output.figure(highest)} tuples/s"
    screen.print(f"highest stable rate: {found}\n")
    screen.print(
        output.table(
            "Trials",
            ("offered", "sustained", "verdict "),
            (
                (
                    output.figure(trial.rate),
                    output.figure(trial.sustained_rate),
                    "stable" if trial.stable else "falls behind",
                )
                for trial in result.tried
            ),
        )
    )
