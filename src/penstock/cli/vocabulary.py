"""The words of the command line: groups of commands, arguments and options that several commands share, former words.

A former word is not listed in any help. It runs the command that replaced it and prints the new words once, on
standard error, so that scripts keep working and their authors learn the new words. Names of policies come from the
registries when a command runs.
"""

from __future__ import annotations

import inspect
import os
from difflib import get_close_matches
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from penstock.base.errors import BadInputError
from penstock.base.former_names import report_former_name
from penstock.cli import output
from penstock.runs.config import AUTO, FUSED, PLACED, Appears, Option, list_options, options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


# Groups of commands, and commands that other packages add.


PLUGINS = "penstock.commands"
"""Entry point group of further commands of `penstock dev`: each entry is a `typer.Typer`."""

FORMER_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "capacity": ("plans", "capacity"),
        "diff": ("plans", "diff"),
        "segments": ("plans", "segments"),
        "rewrite": ("plans", "rewrite"),
        "deploy": ("plans", "deploy"),
        "resume": ("runs", "resume"),
        "rescale": ("runs", "rescale"),
        "place": ("cluster", "place"),
        "share": ("cluster", "share"),
        "submit": ("pipelines", "submit"),
        "list": ("pipelines", "list"),
        "show": ("pipelines", "show"),
        "target": ("pipelines", "target"),
        "priority": ("pipelines", "priority"),
        "pause": ("pipelines", "pause"),
        "activate": ("pipelines", "resume"),
        "kill": ("pipelines", "kill"),
        "logs": ("pipelines", "logs"),
        "trigger": ("pipelines", "trigger"),
        "up": ("controller", "up"),
        "down": ("controller", "down"),
        "serve": ("controller", "serve"),
        "dashboard": ("controller", "dashboard"),
        "policy": ("controller", "policy"),
        "nodes": ("controller", "nodes"),
        "decisions": ("controller", "decisions"),
        "events": ("controller", "events"),
        "manifests": ("controller", "manifests"),
        "broker": ("dev", "broker"),
        "produce": ("dev", "produce"),
        "experiment": ("dev", "experiment"),
        "cluster enter": ("dev", "enter"),
        "cluster link": ("dev", "link"),
    }
)
"""Words of version 0.1 and the words that replaced them."""

REPLACED_BY = {
    "pipelines target": "pipelines set --rate",
    "pipelines priority": "pipelines set --priority",
    "runs drain": "runs pause, or with --stop runs stop",
}
"""Commands that are kept for scripts only, and what to write instead."""


class WordGroup(TyperGroup):
    """A group that also knows the former words of its commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args or not self.no_args_is_help else ["--help"])

    def find(self, name: str) -> Any:
        """Return the command of that present name, or None."""
        return self.commands.get(name)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = self.find(cmd_name)
        if known is not None:
            return known
        above = ctx.command_path.split()[1:]
        words = FORMER_WORDS.get(" ".join([*above, cmd_name]))
        if words is None:
            return None
        _report_once(" ".join([*above, cmd_name]), " ".join(words))
        command = ctx.find_root().command
        for word in words:
            command = command.find(word)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word.startswith("-") or self.get_command(ctx, word) is not None:
            return super().resolve_command(ctx, args)
        above = ctx.command_path.split()[1:]
        known = {name: " ".join([*above, name]) for name in self.list_commands(ctx)}
        if not above:
            known |= {former: " ".join(new) for former, new in FORMER_WORDS.items() if " " not in former}
        close = get_close_matches(word, known, n=1)
        present = ", ".join(self.list_commands(ctx))
        remedy = f"did you mean 'penstock {known[close[0]]}'?" if close else f"known: {present}"
        raise BadInputError(f"unknown command '{' '.join([*above, word])}'; {remedy}")


class PluginGroup(WordGroup):
    """A group to which other installed packages add commands by entry points; loaded when asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_plugins())]

    def find(self, name: str) -> Any:
        command = super().find(name)
        entry = _plugins().get(name) if command is None else None
        if entry is None:
            return command
        try:
            loaded = entry.load()
        except ImportError as error:
            raise BadInputError(f"command '{name}' cannot be loaded from {entry.value}: {error}") from error
        return typer.main.get_command(loaded)


@cache
def _plugins() -> dict[str, metadata.EntryPoint]:
    return {entry.name: entry for entry in metadata.entry_points(group=PLUGINS)}


@cache
def _report_once(former: str, words: str) -> None:
    output.complain(f"note: 'penstock {former}' is now 'penstock {REPLACED_BY.get(words, words)}'")


def make_group(help_text: str, kind: type[TyperGroup] = WordGroup, *, alone: bool = False) -> typer.Typer:
    """Return a group of commands. It prints its help if called without a command, unless it does something `alone`."""
    return typer.Typer(help=help_text, cls=kind, no_args_is_help=not alone, rich_markup_mode=None)


# Arguments and options that several commands share.


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
        declared = [_parameter(option) for option in options(appears | Appears.COMMAND)]
        if not defaults:
            declared = [option if option.default is False else option.replace(default=None) for option in declared]
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
    renamed = {_flag(former): option.flag for option in options(Appears.COMMAND) for former in option.former}
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
