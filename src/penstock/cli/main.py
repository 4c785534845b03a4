"""The `penstock` command: one file per verb, and one place where errors become exit codes.

Exit codes: 0 done, 1 refused (with reasons) or a cluster that is not as it should be, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import warnings
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache
from io import UnsupportedOperation
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import Abort, TyperException

from penstock import __version__
from penstock.base.errors import BadInputError, InterruptedWorkError, PenstockError, RefusedError, nearest, printable
from penstock.base.extras import find_extra, missing_package
from penstock.base.former_names import FormerNameWarning
from penstock.cli import output
from penstock.cli.commands.advise import advise
from penstock.cli.commands.cluster import cluster_app
from penstock.cli.commands.cluster_plans import place, share
from penstock.cli.commands.controller_process import dashboard, down, manifests, repair, serve, up
from penstock.cli.commands.controller_state import decisions, events, nodes, policy
from penstock.cli.commands.deploy import deploy
from penstock.cli.commands.dev import broker_app, produce
from penstock.cli.commands.doctor import doctor
from penstock.cli.commands.init import init
from penstock.cli.commands.models import models_app, profile
from penstock.cli.commands.pipelines import (
    activate,
    kill,
    list_pipelines,
    logs,
    pause,
    priority,
    set_fields,
    show,
    submit,
    target,
    trigger_app,
)
from penstock.cli.commands.plan import plan
from penstock.cli.commands.plans import capacity, diff, rewrite, segments
from penstock.cli.commands.run import run as run_pipeline
from penstock.cli.commands.runs import drain, runs_app
from penstock.cli.commands.simulate import simulate
from penstock.cli.vocabulary import PluginGroup, WordGroup, command_with, former_run_flags, make_group
from penstock.dataflow.secrets import redact
from penstock.runs.config import Appears
from penstock.runs.config import options as run_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Errors name arguments as Python does (`find_max=`); on the command line they must name options (`--find-max`).


OPTION_OF = {
    "batch_overhead_ms": "--batch-overhead",
    "cluster": "--cluster",
    "cores": "--cores",
    "current": "--current",
    "fresh": "--fresh",
    "in_flight": "--in-flight",
    "load": "--load",
    "mode": "--mode",
    "network": "--network",
    "outages": "--fail",
    "queue_limit": "--queue",
    "replay_seconds": "--replay",
    "service": "--service",
    "skew": "--skew",
    "switches": "--switch",
    "utilisation": "--utilisation",
    **{option.key: option.flag for option in run_options(Appears.COMMAND)},
}
"""Arguments that errors name, and the option that gives each."""

_ARGUMENT = re.compile(rf"(?<![\w-])({'|'.join(OPTION_OF)})=(?:'([^']*)'|(?!\w))")


def in_options(message: str) -> str:
    """`rate=: expected ...` as `--rate: expected ...`, `mode='fused'` as `--mode fused`.

    What users write themselves, in the options of a policy (`rate=5`), stays as it is.
    """

    def option(argument: re.Match[str]) -> str:
        name, value = argument.groups()
        return OPTION_OF[name] if value is None else f"{OPTION_OF[name]} {value}"

    return _ARGUMENT.sub(option, message)


LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(redact(super().format(record)), keep="\n")


@contextmanager
def log_on_stderr(asked: str | None, variable: str | None) -> Iterator[None]:
    """Log at the level of PENSTOCK_LOG (`variable`), or else at the level `asked`."""
    level = (variable or asked or "").lower()
    if not level:
        yield
        return
    if level not in LEVELS:
        raise BadInputError(f"PENSTOCK_LOG: unknown level '{level}'; {nearest(level, LEVELS)}")
    logger = logging.getLogger("penstock")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(LEVELS[level])
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def add(group: typer.Typer, *commands: Callable[..., None]) -> None:
    """Add each command under the name of its function."""
    for command in commands:
        group.command()(command)


app = typer.Typer(
    name="penstock",
    help="Plan, place, profile and run streaming pipelines: threads, slots, machines and price for a rate, on Spark.",
    cls=WordGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
add(app, init, profile)
app.command("plan", cls=command_with({"--load": "--utilisation", "--interval-ms": "--batch-interval-ms"}))(plan)
app.command("simulate", cls=command_with({"--batch-interval": "--batch-interval-ms"}))(simulate)
app.command("advise", cls=command_with({"--load": "--utilisation"}))(advise)
add(app, doctor)
app.command(hidden=True)(drain)
app.command("run", cls=command_with(former_run_flags()))(run_pipeline)

plans_app = make_group(
    "Compare and change plans: capacity, differences, segments, fused operators, rounds to a target."
)
add(plans_app, capacity, diff, segments, rewrite, deploy)

pipelines_app = make_group("Pipelines of a controller: submit, list, change, pause, resume and end them.")
add(pipelines_app, submit, show, pause, kill, logs)
pipelines_app.command("list")(list_pipelines)
pipelines_app.command("set")(set_fields)
pipelines_app.command("resume")(activate)
pipelines_app.command(hidden=True)(target)
pipelines_app.command(hidden=True)(priority)
pipelines_app.add_typer(trigger_app, name="trigger")

controller_app = make_group("The controller: start and stop it, its policy, nodes, decisions and events.")
add(controller_app, up, down, serve, dashboard, policy, nodes, decisions, events, manifests, repair)

add(cluster_app, place, share)

dev_app = make_group("Tools for trying out: a Kafka broker, test data, and commands of other packages.", PluginGroup)
dev_app.add_typer(broker_app, name="broker")
dev_app.command()(produce)

for group, name in (
    (plans_app, "plans"),
    (models_app, "models"),
    (runs_app, "runs"),
    (pipelines_app, "pipelines"),
    (controller_app, "controller"),
    (cluster_app, "cluster"),
    (dev_app, "dev"),
):
    app.add_typer(group, name=name)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Say on standard error what is being done; the variable PENSTOCK_LOG=debug says more.",
        ),
    ] = False,
) -> None:
    """Options of all commands."""
    context.with_resource(log_on_stderr("info" if verbose else None, os.environ.get("PENSTOCK_LOG")))


@contextmanager
def former_names_as_notes() -> Iterator[None]:
    """Print a note for a former name that is used, instead of Python's form of a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FormerNameWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, FormerNameWarning):
                output.complain(f"note: {message}")
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


@cache
def _command() -> Any:
    """Made once: typer would make every verb anew for every call in one process."""
    return typer.main.get_command(app)


def _names_only(whole: typer.Typer) -> typer.Typer:
    """The verbs without their options. The list of verbs shows names and first lines, and to read all options of all
    verbs takes half of the time of `penstock --help`."""
    listing = copy(whole)
    listing.registered_commands = [_without_options(command) for command in whole.registered_commands]
    listing.registered_groups = [copy(group) for group in whole.registered_groups]
    for group in listing.registered_groups:
        group.typer_instance = _names_only(group.typer_instance) if group.typer_instance else None
    return listing


def _without_options(command: Any) -> Any:
    def verb() -> None: ...

    verb.__name__, verb.__doc__ = command.callback.__name__, command.callback.__doc__
    bare = copy(command)
    bare.callback = verb
    return bare


def main() -> None:
    # who is asked to end does so as with Ctrl-C: nothing half-made stays behind
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:  # noqa: PLR0911 - one return for every way to fail
    """Run one command; every failure is one line on standard error and an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - stands in until the process ends
    try:
        command = _command() if words not in ([], ["--help"]) else typer.main.get_command(_names_only(app))
        with former_names_as_notes():
            code = command.main(args=words or ["--help"], prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except BadInputError as error:
        return _fail(f"error: {in_options(str(error))}", 2)
    except ModuleNotFoundError as error:
        if error.name is None or find_extra(error.name) is None:
            raise
        return _fail(f"error: {missing_package(error.name.partition('.')[0])}", 2)
    except RefusedError as error:
        return _fail(f"refused: {error}", 1)
    except InterruptedWorkError as error:
        return _fail(f"interrupted; {error}", 130)
    except PenstockError as error:
        return _fail(f"failed: {error}", 1)
    except TyperException as error:
        return _fail(f"error: {error.format_message()}".replace("\n", " "), error.exit_code)
    except (Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        _let_go_of_output()
        return 0
    except OSError as error:
        _let_go_of_output()
        return _fail(f"error: cannot write the output: {error.strerror or error}", 2)
    if code == 130:
        return _fail("interrupted", 130)
    return code if isinstance(code, int) else 0


def _let_go_of_output() -> None:
    """Send what is still to be flushed to nowhere: the reader is gone, and the end of the process must not fail."""
    with suppress(UnsupportedOperation):  # if standard output is replaced by an object that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    if message.strip() != "error:":
        output.complain(message)
    return code
