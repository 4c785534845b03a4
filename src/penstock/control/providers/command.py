"""Nodes by commands of the user's own (ssh, a cloud's command line): a file says them.

    {"acquire": ["my-cloud", "create", "{name}", "--join", "{master}"], "release": ["my-cloud", "delete", "{name}"],
     "list": ["my-cloud", "list"], "slots": 2, "price": 0.2, "timeout_seconds": 60}

`list` prints one JSON array of {"name", "slots"?, "rack"?, "price"?, "alive"?}. No shell reads the commands; a name is
letters, digits and dashes. A command that fails, takes too long or prints anything else is an error that names it; what
it was to do has then not happened as far as anybody here is concerned.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from penstock.control.providers.contract import ProvidedNode, ProviderError
from penstock.errors import BadInputError
from penstock.files import Amount, Count, Name, Positive, Spec, check, read_value

if TYPE_CHECKING:
    from pathlib import Path

Words = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=4000)], ...], Field(min_length=1, max_length=200)]
MOST_OUTPUT = 4_000_000
MOST_NODES = 100_000


class ProviderCommands(Spec):
    acquire: Words
    release: Words
    list: Words
    slots: Count = 1
    price: Amount | None = None
    prefix: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")] = "node"
    timeout_seconds: Positive = 60.0


class ListedNode(Spec):
    name: Name
    slots: Count | None = None
    rack: Name = "r1"
    price: Amount | None = None
    alive: bool = True


class ListedNodes(Spec):
    nodes: Annotated[tuple[ListedNode, ...], Field(max_length=MOST_NODES)]


class CommandProvider:
    def __init__(self, commands: ProviderCommands, master: str = "") -> None:
        self._commands = commands
        self._master = master
        self._made = 0

    @classmethod
    def of_file(cls, path: Path, master: str = "") -> CommandProvider:
        return cls(read_value(ProviderCommands, path), master)

    def acquire(self, count: int, size: str | None) -> list[ProvidedNode]:
        """One command for every node; the first that fails ends it, and those before it are still coming."""
        taken = {node.name for node in self.list()}
        asked: list[ProvidedNode] = []
        for _ in range(count):
            name = self._next_name(taken)
            try:
                self._run("acquire", self._commands.acquire, name=name, size=size or "")
            except ProviderError:
                if asked:
                    return asked
                raise
            asked.append(ProvidedNode(name, self._commands.slots, price=self._commands.price))
        return asked

    def _next_name(self, taken: set[str]) -> str:
        while True:
            self._made += 1
            name = f"{self._commands.prefix}-{self._made}"
            if name not in taken:
                return name

    def release(self, name: str) -> None:
        self._run("release", self._commands.release, name=name)

    def list(self) -> list[ProvidedNode]:
        printed = self._run("list", self._commands.list)
        try:
            rows: Any = json.loads(printed or "[]")
        except ValueError as error:
            shown = " ".join(printed.split())[:80]
            raise ProviderError(f"provider command list: expected a JSON array, found '{shown}'") from error
        try:
            listed = check(ListedNodes, {"nodes": rows}, "list").nodes
        except BadInputError as error:
            raise ProviderError(f"provider command {error}") from error
        names = [node.name for node in listed]
        if len(set(names)) < len(names):
            raise ProviderError("provider command list: it names a node twice")
        own = self._commands
        return [
            ProvidedNode(
                node.name, node.slots or own.slots, node.rack, None, own.price if node.price is None else node.price,
                node.alive,
            )
            for node in listed
        ]  # fmt: skip

    def _run(self, what: str, words: tuple[str, ...], **values: str) -> str:
        """`{name}`, `{size}` and `{master}` are put in; nothing else is."""
        filled = [self._filled(word, values) for word in words]
        seconds = self._commands.timeout_seconds
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command, no shell
                filled, capture_output=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            raise ProviderError(f"provider command {what} took more than {seconds:g} s: {filled[0]}") from error
        except OSError as error:
            raise ProviderError(f"provider command {what}: {filled[0]}: {error.strerror or error}") from error
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise ProviderError(f"provider command {what} ended with {done.returncode}: {lines[-1][:200]}")
        if len(done.stdout) > MOST_OUTPUT:
            raise ProviderError(f"provider command {what} printed {len(done.stdout):,} bytes")
        return done.stdout.decode(errors="replace")

    def _filled(self, word: str, values: dict[str, str]) -> str:
        for key, value in {**values, "master": self._master}.items():
            word = word.replace("{" + key + "}", value)
        return word
