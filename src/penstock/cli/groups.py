"""Groups of commands: former words that still work, and commands that other packages add.

A former word is not listed in any help. It runs the command that replaced it and prints the new words once, on
standard error, so that scripts keep working and their authors learn the new words.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from penstock.base.errors import BadInputError
from penstock.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGINS = "penstock.commands"
"""Entry point group of further commands of `penstock dev`: each entry is a `typer.Typer`."""

FORMER_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "capacity": ("plans", "capacity"),
        "diff": ("plans", "diff"),
        "segments": ("plans", "segments"),
        "rewrite": ("plans", "rewrite"),
        "deploy": ("plans", "deploy"),
        "drain": ("runs", "drain"),
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
