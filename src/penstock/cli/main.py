"""The `penstock` command: one file per verb, and one place where errors become exit codes.

Exit codes: 0 done, 1 refused (with reasons) or a cluster that is not as it should be, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from penstock import __version__
from penstock.cli.capacity import capacity
from penstock.cli.cluster import cluster_app
from penstock.cli.diff import diff
from penstock.cli.drain import drain
from penstock.cli.experiment import experiment_app
from penstock.cli.init import init
from penstock.cli.models import models_app
from penstock.cli.place import place
from penstock.cli.plan import plan
from penstock.cli.profile import profile
from penstock.cli.resume import resume
from penstock.cli.rewrite import rewrite
from penstock.cli.run import run as run_pipeline
from penstock.cli.segments import segments
from penstock.cli.share import share
from penstock.errors import BadInputError, InterruptedWorkError, PenstockError, RefusedError

app = typer.Typer(
    name="penstock",
    help="Plan, place, profile and run streaming pipelines: threads, slots, machines and price for a rate, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(plan)
app.command()(capacity)
app.command()(place)
app.command()(share)
app.command()(diff)
app.command()(segments)
app.command()(rewrite)
app.command()(init)
app.command()(profile)
app.command("run")(run_pipeline)
app.command()(drain)
app.command()(resume)
app.add_typer(models_app, name="models")
app.add_typer(cluster_app, name="cluster")
app.add_typer(experiment_app, name="experiment")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """What every verb shares."""


def main() -> None:
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:  # noqa: PLR0911 - one return for every way to fail
    """Run one command; every failure is one line on standard error and an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - stands in until the process ends
    try:
        code = app(args=words or ["--help"], prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except BadInputError as error:
        return _fail(f"error: {error}", 2)
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(f"error: cannot write the output: {error.strerror or error}", 2)
    if code == 130:
        return _fail("interrupted", 130)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    if message.strip() != "error:":
        print(message, file=sys.stderr)
    return code
