"""Arguments and options that several verbs share. Names of policies come from the registries when a command runs."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.base.errors import BadInputError
from penstock.base.former_names import report_former_name
from penstock.runs.config import AUTO, FUSED, PLACED, Appears, Option, list_options, options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

PipelineArgument = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="A built-in pipeline (linear, diamond, star, ...), a file (.yaml, .json), or module:attribute.",
    ),
]
ModelsOption = Annotated[
    Path | None,
    typer.Option("--models", help="Model file or folder; the reference models stay known beside it."),
]
SecretFileOption = Annotated[
    Path | None,
    typer.Option("--secret-file", help="The secret of the cluster at --master; that of `cluster up` is known."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


# Options of a run, from their declarations.

_TYPES: Mapping[type, Any] = {bool: bool, int: int, float: float, tuple: list[str], dict: list[str]}
_TEXT_ENGINES = f"[{FUSED}|{PLACED}|{AUTO}]"


def takes_run_options(appears: Appears = Appears.COMMAND, *, defaults: bool = True) -> Callable[[F], F]:
    """Give a command an option for each declared one, instead of its `**options`. `defaults`: an option that is not
    given has its default, else None."""

    def decorate(command: F) -> F:
        declared = [_parameter(entry) for entry in options(appears | Appears.COMMAND)]
        if not defaults:
            declared = [entry if entry.default is False else entry.replace(default=None) for entry in declared]
        return list_options(command, declared, evaluate=True)

    return decorate


def _parameter(declared: Option) -> inspect.Parameter:
    kind = _TYPES.get(declared.kind, str)
    is_switch = declared.kind is bool and declared.default is False
    annotation = kind if is_switch else kind | None
    flag = declared.flag
    if declared.kind is bool and not is_switch:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    metavar = declared.metavar or ("PATH" if declared.is_path else None)
    if declared.choices:
        metavar = _TEXT_ENGINES if declared.key == "engine" else f"[{'|'.join(declared.choices)}]"
    option = typer.Option(flag, help=_command_help(declared), metavar=metavar)
    default = declared.default if isinstance(declared.default, bool | int | float | str) else None
    return inspect.Parameter(
        declared.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


def _command_help(declared: Option) -> str:
    """Name the engine of an option that not every run on Spark has."""
    engines = [engine for engine in (FUSED, PLACED) if engine in declared.engines]
    return declared.help if len(engines) != 1 else f"{engines[0].capitalize()}: {_small(declared.help)}"


def _small(text: str) -> str:
    """Begin with a small letter, unless the first word is a name."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def former_run_flags() -> dict[str, str]:
    """Return former flags of `penstock run`, with those that replaced them."""
    renamed = {_flag(former): entry.flag for entry in options(Appears.COMMAND) for former in entry.former}
    return {**renamed, "--placed": f"--engine={PLACED}"}


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def command_with(former: Mapping[str, str]) -> type[TyperCommand]:
    """Return a kind of command that also takes flags by former names and prints the present name once, on standard
    error. A former switch may stand for a flag with a value: `--engine=placed`."""

    class CommandWithFormerFlags(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, list(with_present_flags(args, former)))

    return CommandWithFormerFlags


def with_present_flags(args: list[str], former: Mapping[str, str]) -> Iterator[str]:
    """Yield the arguments with former flags replaced; raise `BadInputError` if both are given."""
    words = args[: args.index("--")] if "--" in args else args
    given = {word.partition("=")[0] for word in words}
    for word in words:
        flag, equals, value = word.partition("=")
        if flag not in former:
            yield word
            continue
        present, with_value, _ = former[flag].partition("=")
        if present in given:
            raise BadInputError(f"{flag} and {present}: two names of one option; keep {present}")
        report_former_name(flag, former[flag].replace("=", " "))
        yield former[flag] if with_value else f"{present}{equals}{value}"
    yield from args[len(words) :]


# Options of all commands that open the controller's store.


STORE_VARIABLE = "PENSTOCK_STORE"
"""Environment variable with the URL of the store."""

StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Database: sqlite:///FILE or postgresql+psycopg://...; without, a file."),
]
StoreFileOption = Annotated[
    Path | None,
    typer.Option("--store-file", help="File with the URL of the database: for one with a password."),
]
TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take the store from a controller of another folder or host, or from one that still runs: it can write no "
        "more. End its drivers first.",
    ),
]


def store_url(store: str | None, store_file: Path | None) -> str | None:
    """The URL given by the options, else by the environment; None: the default."""
    if store is None and store_file is None:
        return os.environ.get(STORE_VARIABLE) or None
    from penstock.control.store.database import url_from_options

    return url_from_options(store, store_file, f"set {STORE_VARIABLE}")
