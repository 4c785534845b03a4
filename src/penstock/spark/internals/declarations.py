"""The list of private parts of Spark that this package touches.

Each function or class that touches one is declared with `touches`. tests/spark/test_internals.py tries every declared
touch on the pyspark it runs with, and docs/spark-versions.md is the table of all of them:

    python -m penstock.spark.internals.declarations > docs/spark-versions.md
"""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

TRIED = ("4.0.0", "4.3.0")
"""Versions on which every touch was tried: the oldest that is supported, and the newest."""
PACKAGE = "penstock.spark.internals"


@dataclass(frozen=True, slots=True)
class Touch:
    """One function or class, the private part of Spark it depends on, and the reason that there is no public way."""

    name: str
    """Module and name inside the package, as `java.java_pid`."""
    part: str
    why: str
    tried: tuple[str, ...]
    """Versions on which it works; on others something else is done instead."""


TOUCHES: dict[str, Touch] = {}
T = TypeVar("T")


def touches(part: str, why: str, tried: tuple[str, ...] = TRIED) -> Callable[[T], T]:
    """Declare that the decorated function or class depends on a private part of Spark."""

    def declare(decorated: T) -> T:
        module = getattr(decorated, "__module__", "").removeprefix(f"{PACKAGE}.")
        name = f"{module}.{getattr(decorated, '__qualname__', '')}"
        TOUCHES[name] = Touch(name, part, why, tried)
        return decorated

    return declare


def declared() -> tuple[Touch, ...]:
    """Return all touches, in the order of their names. Pyspark is not imported for it."""
    package = importlib.import_module(PACKAGE)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != __name__.rpartition(".")[2]:
            importlib.import_module(f"{PACKAGE}.{module.name}")
    # run as a program, this module is there twice: what the others filled is the imported one
    known: dict[str, Touch] = importlib.import_module(f"{PACKAGE}.declarations").TOUCHES
    return tuple(known[name] for name in sorted(known))


HEAD = """\
# Private parts of Spark, and the versions they were tried on

Penstock needs some things for which Spark has no public way. All of them are in `penstock.spark.internals`, and
each is declared there with the part it touches. `tests/spark/test_internals.py` tries them one by one: on the
installed pyspark by `./run test tests/spark/test_internals.py`, on the oldest supported one by
`./run test-oldest tests/spark/test_internals.py`. A test that fails names the touch whose part has moved.

This page is written from the declarations: `python -m penstock.spark.internals.declarations`.
"""


def _item(text: str) -> str:
    return textwrap.fill(text, 118, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def page() -> str:
    """Return docs/spark-versions.md."""
    versions = " | ".join(TRIED)
    lines = [HEAD, f"| touch | {versions} |", f"| --- |{' --- |' * len(TRIED)}"]
    lines += [
        f"| [{touch.name}](#{touch.name.replace('.', '').lower()}) |"
        + "".join(" works |" if version in touch.tried else " - |" for version in TRIED)
        for touch in declared()
    ]
    for touch in declared():
        lines += [f"\n## {touch.name}\n", _item(f"Private part: {touch.part}"), _item(f"Why: {touch.why}")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
