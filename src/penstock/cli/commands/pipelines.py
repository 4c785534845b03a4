"""`penstock pipelines`: submit, list, show, change, pause, resume and end pipelines; their triggers and logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.cli.controller_access import NameArgument, TokenFileOption, UrlOption, controller, warn_of_trouble
from penstock.cli.reports import plan_lines
from penstock.cli.vocabulary import JsonOption, takes_run_options
from penstock.control.registry import trigger_kind_names
from penstock.planning.registry import ALLOCATORS, PLACERS
from penstock.runs.config import Appears

if TYPE_CHECKING:
    from collections.abc import Iterable


RateOption = Annotated[float | None, typer.Option("--rate", help="Tuples/s it must sustain.")]
LatencyOption = Annotated[float | None, typer.Option("--latency", help="Milliseconds it may take.")]


@takes_run_options(Appears.HTTP, defaults=False)
def submit(
    name: NameArgument,
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="A built-in pipeline, a file, or module:attribute.")
    ] = None,
    plan: Annotated[Path | None, typer.Option("--plan", help="A plan file instead of a pipeline.")] = None,
    rate: RateOption = None,
    latency: LatencyOption = None,
    desired: Annotated[int | None, typer.Option("--desired", help="Nodes; without, what the rate needs.")] = None,
    minimum: Annotated[int | None, typer.Option("--minimum", help="Fewer nodes are of no use to it.")] = None,
    maximum: Annotated[int | None, typer.Option("--maximum", help="More nodes it never gets.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Level; 1 is the highest.")] = None,
    engine: Annotated[str | None, typer.Option("--engine", help="auto, fused or placed.")] = None,
    allocator: Annotated[
        str | None,
        typer.Option("--allocator", help=f"Decides its threads: {ALLOCATORS.listed()}; default: the controller's."),
    ] = None,
    placer: Annotated[
        str | None,
        typer.Option("--placer", help=f"Decides their places: {PLACERS.listed()}; default: the controller's."),
    ] = None,
    executor_memory: Annotated[
        float | None,
        typer.Option("--executor-memory", metavar="MB", help="Memory of each of its executors; default 1024."),
    ] = None,
    executor_cores: Annotated[
        float | None, typer.Option("--executor-cores", help="Cores of an executor of a fused pipeline; default 1.")
    ] = None,
    load: Annotated[
        str | None, typer.Option("--load", help="Rate its source emits, as in `penstock simulate`.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
    **run_options: Any,
) -> None:
    """Submit a pipeline to the controller. To submit the same again changes nothing.

    NAME alone may be a plan file, or what `place --json --full` printed: then all its pipelines are submitted, each on
    the slots it was placed on.
    """
    options: dict[str, Any] = {
        "rate": rate,
        "latency_ms": latency,
        "desired": desired,
        "minimum": minimum,
        "maximum": maximum,
        "priority": priority,
        "engine": engine,
        "allocator": allocator,
        "placer": placer,
        "executor_memory_mb": executor_memory,
        "executor_cores": executor_cores,
        "load": load,
        "options": {
            key: value for key, value in run_options.items() if value is not None and value is not False and value != []
        },
    }
    plans = _plans_of(name) if pipeline is None and plan is None else {}
    with controller(url, token_file) as client:
        if plans:
            answers = [client.submit(each, plan=document, **options) for each, document in plans.items()]
        else:
            answers = [client.submit(name, pipeline, plan=None if plan is None else plan.absolute(), **options)]
    if json:
        output.print_json(answers if plans else answers[0])
        return
    for answer in answers:
        _print_outcome(answer, json=False)


def _plans_of(file: str) -> dict[str, dict[str, Any]]:
    """By the names they are submitted under; nothing where it is no file of plans."""
    if Path(file).suffix != ".json" or not Path(file).is_file():
        return {}
    from penstock.inputs.finders import is_placed_file, placed_plans
    from penstock.planning.files import read_plan

    if is_placed_file(file):
        return {name: plan.model_dump(mode="json") for name, plan in placed_plans(file).items()}
    plan = read_plan(Path(file))
    return {plan.pipeline: plan.model_dump(mode="json")}


def kill(
    name: NameArgument, url: UrlOption = None, token_file: TokenFileOption = None, json: JsonOption = False
) -> None:
    """End a pipeline for good."""
    with controller(url, token_file) as client:
        _print_outcome(client.kill(name), json=json)


def pause(
    name: NameArgument, url: UrlOption = None, token_file: TokenFileOption = None, json: JsonOption = False
) -> None:
    """Drain a pipeline and let its nodes go; its positions are kept."""
    with controller(url, token_file) as client:
        _print_outcome(client.pause(name), json=json)


def activate(
    name: NameArgument, url: UrlOption = None, token_file: TokenFileOption = None, json: JsonOption = False
) -> None:
    """Let a pipeline that was paused, or has failed, run again."""
    with controller(url, token_file) as client:
        _print_outcome(client.activate(name), json=json)


def set_fields(
    name: NameArgument,
    rate: RateOption = None,
    latency: LatencyOption = None,
    minimum: Annotated[int | None, typer.Option("--minimum", help="Min nodes; it waits with fewer.")] = None,
    maximum: Annotated[int | None, typer.Option("--maximum", help="Max nodes.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Level; 1 is the highest.")] = None,
    load: Annotated[
        str | None, typer.Option("--load", help="Rate its source emits, as in `penstock simulate`.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Change the target, the bounds, the priority or the load of a pipeline."""
    changes = {"minimum": minimum, "maximum": maximum, "priority": priority, "load": load}
    given: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    if rate is not None or latency is not None:
        target = {"rate": rate, "latency_ms": latency}
        given["target"] = {key: value for key, value in target.items() if value is not None}
    if not given:
        raise BadInputError(
            f"pipeline '{name}': nothing to change; give --rate, --latency, --minimum, --maximum, --priority or --load"
        )
    with controller(url, token_file) as client:
        _print_outcome(client.change(name, **given), json=json)


def target(
    name: NameArgument,
    rate: RateOption = None,
    latency: LatencyOption = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Say what must hold from now on."""
    with controller(url, token_file) as client:
        _print_outcome(client.target(name, rate=rate, latency_ms=latency), json=json)


def priority(
    name: NameArgument,
    level: Annotated[int, typer.Argument(help="1 is the highest.")],
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Give a pipeline another priority level."""
    with controller(url, token_file) as client:
        _print_outcome(client.priority(name, level), json=json)


def logs(name: NameArgument, url: UrlOption = None, token_file: TokenFileOption = None) -> None:
    """Print the log of the driver of a pipeline."""
    with controller(url, token_file) as client:
        output.say(client.logs(name).rstrip("\n"))


def list_pipelines(
    watch: Annotated[bool, typer.Option("--watch", help="Go on, with a new table whenever something changes.")] = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """List the pipelines of the controller."""
    with controller(url, token_file) as client:
        if not watch:
            _print(client.list(), json=json)
            warn_of_trouble(client)
            return
        known: dict[str, Any] = {}
        for step in client.watch():
            known.update({document["name"]: document for document in step["pipelines"]})
            _print(known.values(), json=json)


def _print(rows: Iterable[dict[str, Any]], *, json: bool) -> None:
    rows = list(rows)
    if json:
        output.print_json(rows)
        return
    output.console().print(
        output.table(
            f"{len(rows):,} pipelines",
            (
                "pipeline",
                "state ",
                "priority",
                "needed",
                "held",
                "rate",
                "backlog",
                "latency ms",
                "fairness",
                "waiting ",
            ),
            (
                (
                    row["name"],
                    row["state"],
                    str(row["priority"]),
                    str(row["needed"]),
                    str(row["held"]),
                    output.figure(row["rate"]),
                    output.figure(row["backlog"]),
                    output.figure(row["latency_ms"]),
                    output.figure(row["fairness"], 3),
                    row["waiting"] or "",
                )
                for row in rows
            ),
            most=output.MOST_ROWS,
        )
    )
    from penstock.service.documents import OVER, of_all

    living = [row["fairness"] for row in rows if row["state"] not in OVER]
    whole = of_all(living)
    if len(living) > 1:
        figures = f"degree {whole['degree']:.3f}, least {whole['least']:.3f}, Jain's index {whole['jain']:.3f}"
        output.say(f"fairness   {figures}, over all pipelines")


def show(
    name: NameArgument, url: UrlOption = None, token_file: TokenFileOption = None, json: JsonOption = False
) -> None:
    """Show all the controller knows of a pipeline."""
    with controller(url, token_file) as client:
        document = client.show(name)
        warn_of_trouble(client)
    if json:
        output.print_json(document)
        return
    plan = document.pop("plan")
    for key, value in document.items():
        if value not in (None, [], "", {}):
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            output.say(f"{key:<17}{shown}")
    for line in plan_lines(plan) if plan is not None else ():
        output.say(line if line.startswith(" ") else f"{'plan':<17}{line}")


def _print_outcome(row: dict[str, Any], *, json: bool) -> None:
    if json:
        output.print_json(row)
        return
    waits = f"; waits: {row['waiting']}" if row["waiting"] else ""
    output.say(f"{row['name']}: {row['state']}, priority {row['priority']}, {row['assigned']} assigned{waits}")


trigger_app = typer.Typer(
    help="Add, edit and switch the triggers of a pipeline.", no_args_is_help=True, rich_markup_mode=None
)
NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", help="Of the trigger, as `trigger list` prints it.")]


@trigger_app.command()
def add(
    name: NameArgument,
    kind: Annotated[str, typer.Argument(help=f"{', '.join(trigger_kind_names())} (a function over the readings).")],
    above: Annotated[
        float | None,
        typer.Option("--above", help="The threshold: rows/s, messages, or the value of the field."),
    ] = None,
    below: Annotated[float | None, typer.Option("--below", help="Off only below this.")] = None,
    share: Annotated[float | None, typer.Option("--share", help="batch-share: part of a batch, 0 to 1.")] = None,
    field: Annotated[str | None, typer.Option("--field", help="batch-share: name of the field.")] = None,
    for_seconds: Annotated[float | None, typer.Option("--for", help="It must hold for so many seconds.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="The level while it is on.")] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Add a trigger."""
    options = {
        "above": above,
        "below": below,
        "share": share,
        "field": field,
        "for_seconds": for_seconds,
        "priority": priority,
    }
    with controller(url, token_file) as client:
        _print_triggers([client.trigger(name, kind, **options)], json=json)


@trigger_app.command("list")
def list_triggers(
    name: NameArgument, url: UrlOption = None, token_file: TokenFileOption = None, json: JsonOption = False
) -> None:
    """List the triggers of a pipeline."""
    with controller(url, token_file) as client:
        _print_triggers(client.triggers(name), json=json)


@trigger_app.command()
def on(
    name: NameArgument,
    number: NumberArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Switch a trigger on by hand; it stays on until it is switched off by hand."""
    with controller(url, token_file) as client:
        _print_triggers([client.switch(name, number, on=True)], json=json)


@trigger_app.command()
def off(
    name: NameArgument,
    number: NumberArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Switch a trigger off by hand."""
    with controller(url, token_file) as client:
        _print_triggers([client.switch(name, number, on=False)], json=json)


@trigger_app.command()
def enable(
    name: NameArgument,
    number: NumberArgument,
    no: Annotated[bool, typer.Option("--no", help="Disable it instead.")] = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Let a trigger be evaluated again, or no longer."""
    with controller(url, token_file) as client:
        _print_triggers([client.edit_trigger(name, number, enabled=not no)], json=json)


@trigger_app.command()
def remove(
    name: NameArgument,
    number: NumberArgument,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> None:
    """Remove a trigger; the priority it gave goes with it."""
    with controller(url, token_file) as client:
        _print_triggers(client.remove_trigger(name, number), json=json)


def _print_triggers(rows: Iterable[dict[str, Any]], *, json: bool) -> None:
    rows = list(rows)
    if json:
        output.print_json(rows)
        return
    output.console().print(
        output.table(
            f"{len(rows):,} triggers",
            ("number", "kind ", "above", "below", "for s", "priority", "enabled ", "on "),
            (
                (
                    str(row["id"]),
                    row["kind"],
                    output.figure(row["above"]),
                    output.figure(row["below"]),
                    output.figure(row["for_seconds"]),
                    str(row["priority"]),
                    "yes" if row["enabled"] else "no",
                    "yes" if row["on"] else "no",
                )
                for row in rows
            ),
        )
    )
