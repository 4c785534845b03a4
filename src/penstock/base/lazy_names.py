"""Modules that list names of other modules and load each when it is first used.

`lazy_loader` does this for a package and the modules below it. A plain module that lists names from the whole project
would store them in the package above it, so `penstock.types` and `penstock.plugins` use this instead.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LINE = re.compile(r"^from \.(\S+) import (\w+) as \2$", re.MULTILINE)


def listed_names(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for `module`, by the stub beside its `file`."""
    package = module.rpartition(".")[0]
    stub = Path(file).with_suffix(".pyi").read_text("utf-8")
    homes = {name: f"{package}.{home}" for home, name in _LINE.findall(stub)}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return load, lambda: sorted(homes), sorted(homes)
