"""`penstock run`: a pipeline or a plan on embedded Spark, predicted beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.arguments import JsonOption, ModelsOption, SecretFileOption
from penstock.cli.reports import highest_line, operators_table, trials_table
from penstock.report.result import error_text, ids_line, latency_line

if TYPE_CHECKING:
    from penstock.inputs.finders import RunnableLike
    from penstock.report.result import PlacedResult, RunResult


SHOWN_ERRORS = 5
MOST_DEAD = 0.01
"""As `penstock.report.report` has it, which loads numpy."""
PLACED_SECONDS = 20.0


def run(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE",
            help="A built-in pipeline (linear, star, ...), a file (.yaml, .json), module:attribute, a plan file, or "
            "what `place --json --full` printed.",
        ),
    ],
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            help="Tuples/s of every source: 100, steps:SECONDSxRATE,..., on-off:RATE,ON,OFF (seconds), or "
            "trace:FILE.csv (columns time, rate). Default: the rate of the plan, where one is run.",
        ),
    ] = None,
    from_topic: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TOPIC",
            help="Read from kafka:HOST:PORT/TOPIC or log:FOLDER/TOPIC instead of the pipeline's own sources.",
        ),
    ] = None,
    to_topic: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TOPIC",
            help="Write to kafka:HOST:PORT/TOPIC or log:FOLDER/TOPIC (TOPIC-SINK, where there are several sinks), made "
            "where it is not there.",
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Slots; default: those of the plan, else one per core.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            help="How long, past the first batch; with --find-max, each trial (20). Else until Ctrl-C, which drains.",
        ),
    ] = None,
    warm_up: Annotated[
        float | None,
        typer.Option("--warm-up", help="Seconds at the start that do not count (5, or a quarter of fewer than 20)."),
    ] = None,
    find_max: Annotated[bool, typer.Option("--find-max", help="Look for the highest stable rate.")] = False,
    low: Annotated[float | None, typer.Option("--low", help="With --find-max: a rate that is surely stable.")] = None,
    high: Annotated[float | None, typer.Option("--high", help="With --find-max: no rate above this.")] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Take in what the sources hold now, and end.")] = False,
    dead_letters: Annotated[
        Path | None, typer.Option("--dead-letters", help="Folder for dead letters, as JSON lines.")
    ] = None,
    most_dead: Annotated[
        float, typer.Option("--most-dead", help="The part of all tuples (0 to 1) that may become dead letters.")
    ] = MOST_DEAD,
    audit: Annotated[
        bool | None,
        typer.Option(
            "--audit/--no-audit", help="Look for every tuple in what came out; default: where the load generator emits."
        ),
    ] = None,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", min=1, help="Milliseconds from one batch to the next, at least.")
    ] = 100,
    packages: Annotated[
        list[str] | None, typer.Option("--packages", help="A Maven package that a format needs; may be repeated.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", help="KEY=VALUE: a setting of Spark's; may be repeated.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw rates, backlog and latency over time (.png, .svg, .pdf).")
    ] = None,
    placed: Annotated[
        bool,
        typer.Option("--placed", help="Every operator on the slot its plan names, on the cluster of `cluster up`."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            help="local[N], spark://HOST:PORT, yarn, k8s://...; `cluster` is the one of `cluster up`. Default: local.",
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAME", help="Of a file with many placed pipelines: this one.")
    ] = None,
    secret_file: SecretFileOption = None,
    executor_memory: Annotated[
        int | None,
        typer.Option(
            "--executor-memory", metavar="MB", help="Of an executor on a cluster; default: a slot of the plan, or 1024."
        ),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option("--folder", help="Where the run keeps what it needs to be resumed; placed: or a URI (s3://...)."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="Where Spark keeps its checkpoint, or a URI; default: in the folder."),
    ] = None,
    routing: Annotated[
        str | None, typer.Option("--routing", help="Placed: shuffle or slot-aware; default: that of the plan.")
    ] = None,
    segmenter: Annotated[
        str | None,
        typer.Option("--segmenter", help="Placed: what runs as one where it sits together; default: ends."),
    ] = None,
    at_least_once: Annotated[
        bool,
        typer.Option(
            "--at-least-once", help="Placed: write sinks that cannot commit by epoch; a death may double rows."
        ),
    ] = False,
    tls: Annotated[
        Path | None,
        typer.Option("--tls", help="Placed: a PEM file with a certificate and its key, for TLS between bundles."),
    ] = None,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Run PIPELINE and report predicted beside measured: fused on embedded Spark, or placed on a cluster."""
    from penstock.inputs.finders import is_placed_file, one_placed_plan

    decided = one_placed_plan(pipeline, only) if is_placed_file(pipeline) else None
    if only is not None and decided is None:
        raise BadInputError("--only: names one of the pipelines that `place --json --full` printed")
    to_run = _on_topics(decided or pipeline, from_topic, to_topic)
    if placed or decided is not None:
        unfit = {
            "--slots": slots,
            "--until-end": until_end,
            "--most-dead": most_dead != MOST_DEAD,
            "--checkpoint": checkpoint,
            "--executor-memory": executor_memory,
        }
        if named := [option for option, given in unfit.items() if given]:
            raise BadInputError(f"{', '.join(named)}: not for placed runs")
        from penstock.api import runs as running_placed
        from penstock.api.runs import warm_up_of
        from penstock.cli.live import listening
        from penstock.cli.reports import print_placed

        length = PLACED_SECONDS if seconds is None else seconds
        _check_plot(plot)
        with listening(json=json) as listener:
            placed_result = running_placed.run_placed(
                to_run,
                rate,
                master=master,
                secret_file=secret_file,
                seconds=length,
                warm_up=warm_up_of(warm_up, length),
                find_max=find_max,
                low=low,
                high=high,
                models=models,
                routing=routing,
                segmenter=segmenter,
                folder=folder,
                dead_letters=dead_letters,
                at_least_once=at_least_once,
                tls=tls,
                packages=packages or (),
                settings=spark_settings(conf or []),
                listener=listener,
            )
        _plot(placed_result, plot)
        print_placed(placed_result, json=json)
        return
    only_placed = {"--routing": routing, "--segmenter": segmenter, "--at-least-once": at_least_once, "--tls": tls}
    if named := [option for option, given in only_placed.items() if given]:
        raise BadInputError(f"{', '.join(named)}: only with --placed")
    from penstock.api import runs as running
    from penstock.cli.live import listening

    _check_plot(plot)
    with listening(json=json) as listener:
        result = running.run(
            to_run,
            rate,
            slots=slots,
            seconds=seconds,
            warm_up=warm_up,
            models=models,
            find_max=find_max,
            low=low,
            high=high,
            until_end=until_end,
            audit=audit,
            dead_letters=dead_letters,
            most_dead=most_dead,
            interval_ms=interval_ms,
            folder=folder,
            checkpoint=checkpoint,
            master=master,
            packages=packages or (),
            settings=spark_settings(conf or []),
            secret_file=secret_file,
            executor_memory_mb=executor_memory,
            listener=listener,
        )
    _plot(result, plot)
    print_fused(result, json=json)


def _on_topics(given: RunnableLike, from_topic: str | None, to_topic: str | None) -> RunnableLike:
    from penstock.inputs.topic_endpoints import reading_from, writing_to

    if from_topic is not None:
        given = reading_from(given, from_topic)
    return given if to_topic is None else writing_to(given, to_topic)


def _check_plot(path: Path | None) -> None:
    """Before the run: what comes of it is not to be lost for want of a place."""
    from penstock.base.files import check_writable
    from penstock.pictures.canvas import check_ending

    if path is not None:
        check_ending(path)
        check_writable(path)


def _plot(result: RunResult | PlacedResult, path: Path | None) -> None:
    from penstock.pictures.drawings import draw_run

    if path is None:
        return
    if not result.report.history:
        # the report says the rest
        output.complain(f"{path}: nothing to draw: no batch was finished")
        return
    draw_run(result, path)


def spark_settings(given: list[str]) -> dict[str, str]:
    settings = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise BadInputError(f"--conf '{text}': expected KEY=VALUE")
        settings[key] = value
    return settings


def print_fused(result: RunResult, *, json: bool) -> None:
    """The report, and the exit code: 1 where tuples were lost, came twice, or too many of them died."""
    if json:
        output.print_json(result.document())
    else:
        _print(result)
    if result.interrupted:
        raise typer.Exit(130)
    audit = result.report.audit
    if audit.lost or audit.duplicated or audit.dead_share > result.report.most_dead:
        raise typer.Exit(1)


def _print(result: RunResult) -> None:
    screen = output.console()
    report = result.report
    screen.print(f"{result.headline}\n")
    if result.searched:
        screen.print(highest_line(result.highest_rate))
        screen.print(trials_table(result.tried))
    screen.print(operators_table(report, result.threads))
    predicted = result.predicted_slot
    screen.print(
        output.table(
            "Slots",
            ("slot", "cpu predicted", "cpu", "memory MB predicted", "memory MB"),
            (
                (
                    str(slot),
                    "-" if predicted is None else output.share(predicted[0]),
                    output.share(cpu),
                    "-" if predicted is None else f"{predicted[1]:,.0f}",
                    f"{memory:,.0f}",
                )
                for slot, (cpu, memory) in report.slots.items()
            ),
        )
    )
    for line in _predictions(result):
        screen.print(f"predicted  {line}")
    if result.predicted_latency_ms is not None:
        where = "of a batch" if result.own_source else "at the rate offered"
        screen.print(f"predicted  latency {output.latencies(result.predicted_latency_ms)} {where}")
    if result.predicted_latency_ms_at_pace is not None:
        latencies = output.latencies(result.predicted_latency_ms_at_pace)
        screen.print(f"predicted  latency {latencies} on cores as fast as they were meanwhile")
    screen.print(latency_line(report))
    if report.backlog or not result.own_source:  # most sources of Spark's own do not say what waits in them
        screen.print(f"backlog    {report.backlog:,} tuples")
    if report.engine_cpu is not None:
        screen.print(f"engine     {output.share(report.engine_cpu)} of a core")
    screen.print(ids_line(report))
    for error in report.first_errors[:SHOWN_ERRORS]:
        screen.print(f"dead       {error}")
    for note in report.notes:
        screen.print(f"note       {note}")


def _predictions(result: RunResult) -> list[str]:
    error = error_text(result.rate_error)
    if result.predicted_rate is None:
        lines = ["nothing: no operator has a model"]
    else:
        lines = [f"at most {output.figure(result.predicted_rate)} tuples/s fused{error}"]
    if result.predicted_rate_at_pace is not None:
        lines.append(
            f"{output.figure(result.predicted_rate_at_pace)} tuples/s on cores as fast as they were meanwhile, "
            f"{result.pace:.2f} times as fast as when the models were measured{error_text(result.rate_error_at_pace)}"
        )
    if result.plan_rates is not None:
        rates = ", ".join(
            f"{output.figure(rate)} with {routing.replace('_', '-')} routing"
            for routing, rate in result.plan_rates.items()
        )
        lines.append(f"by the plan, for its own placement: {rates}")
    return lines


# `penstock resume`: a run goes on, where it was or onto another plan.


def resume(
    folder: Annotated[str, typer.Argument(help="The folder of a run, or the name `penstock runs` shows.")],
    plan: Annotated[Path | None, typer.Argument(help="Another plan to go on with, after a drain.")] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="spark://HOST:PORT; default: the cluster the run was started on.")
    ] = None,
    secret_file: SecretFileOption = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Of a fused run: other slots than before.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="How long, where it is conducted from here; placed: 20, fused: until Ctrl-C."),
    ] = None,
    warm_up: Annotated[
        float | None,
        typer.Option("--warm-up", help="Seconds at the start that do not count (5, or a quarter of fewer than 20)."),
    ] = None,
    dead_letters: Annotated[
        Path | None,
        typer.Option("--dead-letters", help="Another folder for dead letters; a fused run must have had one."),
    ] = None,
    models: ModelsOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a run that waits (after `drain`), or that was stopped, or whose process died."""
    from penstock.api import runs as resuming
    from penstock.cli.live import listening
    from penstock.cli.reports import print_placed
    from penstock.report.result import RunResult

    with listening(json=json) as listener:
        resumed = resuming.resume(
            folder,
            plan,
            master=master,
            secret_file=secret_file,
            slots=slots,
            seconds=seconds,
            warm_up=warm_up,
            models=models,
            dead_letters=dead_letters,
            listener=listener,
        )
    if isinstance(resumed.result, RunResult):
        print_fused(resumed.result, json=json)
    elif resumed.result is not None:
        print_placed(resumed.result, json=json)
    elif json:
        output.print_json({"folder": str(folder), "resumed_seconds": resumed.seconds})
    else:
        output.say(f"resumed: the first tuple came to its end after {resumed.seconds:.1f} s")


# `penstock drain`: a run finishes what is in flight and waits, or ends.


def drain(
    folder: Annotated[str, typer.Argument(help="The folder of a run, or the name `penstock runs` shows.")],
    stop: Annotated[bool, typer.Option("--stop", help="End the run then; otherwise it waits for `resume`.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the sources of a run and finish what is in flight: nothing is lost or done twice."""
    from penstock.api import runs as draining

    seconds = draining.drain(folder, stop=stop)
    if json:
        output.print_json({"folder": str(folder), "drained_seconds": seconds, "stopped": stop})
    else:
        after = "it ends" if stop else f"it waits; go on with: penstock resume {folder}"
        output.say(f"drained in {seconds:.1f} s; {after}")


# `penstock rescale`: more or fewer slots for a run, while it goes on.


def rescale(
    run: Annotated[str, typer.Argument(help="The folder of a run, or the name `penstock runs` shows.")],
    slots: Annotated[int, typer.Option("--slots", min=1, help="How many it is to have.")],
    json: JsonOption = False,
) -> None:
    """Add executors to a fused run on a cluster, or let some go; a placed run is planned anew for so many slots."""
    from penstock.api import live as rescaling

    seconds = rescaling.rescale(run, slots)
    if json:
        output.print_json({"run": run, "slots": slots, "seconds": seconds})
    else:
        typer.echo(f"{slots} slots after {seconds:.1f} s")


# `penstock runs`: the runs of this user, and how they stand.


def runs(json: JsonOption = False) -> None:
    """Runs that live, were lost with their process, failed, or ended in a folder of their own."""
    from penstock.api import live as listing

    listed = listing.list_runs()
    if json:
        output.print_json([run.document() for run in listed])
        return
    if not listed:
        typer.echo("no runs; `penstock run PIPELINE` starts one")
        return
    columns = ("run", "pipeline", "engine", "state", "slots", "dead letters", "folder")
    rows = (
        (
            run.name,
            run.pipeline,
            run.engine,
            str(run.state),
            str(run.details.get("slots", "-")),
            str(run.details.get("dead", "-")),
            str(run.folder),
        )
        for run in listed
    )
    output.console().print(output.table("Runs", columns, rows))
