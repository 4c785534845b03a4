"""`penstock simulate`: plans executed in simulated time, predicted beside simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.reports import highest_line, operators_table, slots_table, trials_table
from penstock.cli.vocabulary import JsonOption, ModelsOption
from penstock.report.result import error_text, ids_line

if TYPE_CHECKING:
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
        float | None,
        typer.Option(
            "--warm-up", help="Seconds that the report leaves out; default: 5, or a quarter of fewer than 20."
        ),
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
    batch_interval_ms: Annotated[
        float | None,
        typer.Option("--batch-interval-ms", help="Milliseconds: tuples wait for the next batch, as on Spark."),
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
    from penstock.api import simulation as simulating
    from penstock.base.files import check_writable
    from penstock.cli.live import listening
    from penstock.pictures.canvas import check_ending

    if plot is not None:
        check_ending(plot)
        check_writable(plot)
    with listening(json=json) as listener:
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
            batch_interval_ms=batch_interval_ms,
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
            listener=listener,
        )
    if plot is not None:
        from penstock.pictures.drawings import draw_simulation

        draw_simulation(result, plot)
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    missed = result.highest_rate is None if find_max else not result.stable
    if missed:
        raise typer.Exit(1)


def _print(result: SimulatedResult) -> None:
    screen = output.console()
    if result.searched:
        screen.print(highest_line(result.highest_rate))
        screen.print(trials_table(result.tried))
    if len(result.pipelines) > 1:
        screen.print(_pipelines_table(result))
    for pipeline in result.pipelines:
        screen.print(f"{pipeline.headline}\n")
        if len(result.pipelines) == 1:
            screen.print(operators_table(pipeline.report))
            screen.print(slots_table(pipeline.report.slots, pipeline.predicted_slots, output.MOST_ROWS))
        screen.print(_comparison_table(pipeline))
        _print_lines(pipeline)
    if len(result.pipelines) > 1:
        screen.print(_nodes_table(result))
        if result.fairness:
            screen.print(f"fairness   degree {result.fairness[-1][1]:.3f} over all pipelines")
    for note in result.notes:
        screen.print(f"note       {note}")


def _print_lines(pipeline: PipelineResult) -> None:
    screen = output.console()
    report = pipeline.report
    limit = f" (limited by {pipeline.predicted_bottleneck})" if pipeline.predicted_bottleneck else ""
    error = error_text(pipeline.rate_error)
    screen.print(f"predicted  at most {output.figure(pipeline.predicted_rate)} tuples/s{limit}{error}")
    screen.print(f"backlog    {report.backlog:,} tuples")
    screen.print(ids_line(report))
    if not report.stable:
        screen.print(
            f"missed     {output.figure(report.sustained_rate)} of {output.figure(report.offered_rate)} tuples/s: "
            f"the bottleneck is {pipeline.bottleneck or 'not known'}"
        )
    for note in report.notes:
        screen.print(f"note       {note}")


_ROWS = {"rate": "rate, tuples/s", "cpu": "cpu of all slots, cores"}


def _comparison_table(pipeline: PipelineResult) -> Table:
    """Predicted, simulated and, where there is a run, measured; each error is against the column to its right."""
    measured = pipeline.measured is not None
    columns = ["", "predicted", "simulated", "error"]
    if measured:
        columns = ["", "predicted", "simulated", "measured", "error of predicted", "error of simulated"]
    rows = []
    for name, row in pipeline.comparison.items():
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


def _pipelines_table(result: SimulatedResult) -> Table:
    return output.table(
        f"{len(result.pipelines)} pipelines, nodes: {len(result.nodes):,}",
        ("pipeline", "offered", "sustained", "predicted at most", "p50 ms", "p99 ms", "lost", "verdict "),
        (
            (
                pipeline.pipeline,
                output.figure(pipeline.report.offered_rate),
                output.figure(pipeline.report.sustained_rate),
                output.figure(pipeline.predicted_rate),
                output.figure(pipeline.report.latency_ms.get("p50")),
                output.figure(pipeline.report.latency_ms.get("p99")),
                f"{pipeline.report.audit.lost:,}",
                "stable" if pipeline.report.stable else f"falls behind: {pipeline.bottleneck}",
            )
            for pipeline in result.pipelines
        ),
    )


def _nodes_table(result: SimulatedResult) -> Table:
    return output.table(
        "Nodes",
        ("node", "cpu, cores", "memory MB"),
        ((name, f"{cpu:.2f}", f"{memory:,.0f}") for name, (cpu, memory) in result.nodes.items()),
        most=output.MOST_ROWS,
    )
