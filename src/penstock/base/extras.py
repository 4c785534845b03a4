"""Optional packages: the extra of Penstock that installs each, read from the metadata of the installed distribution."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec

from penstock.base.errors import BadInputError

UMBRELLAS = frozenset({"all", "lab"})
"""Extras that only name others."""

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+).*\bextra\s*==\s*['\"]([\w-]+)['\"]")


def missing_package(package: str, needs: str = "this needs") -> BadInputError:
    """Return the error for an optional package that is not installed, with the command that installs it.

    `needs` begins the sentence, as in "drawing needs".
    """
    extra = find_extra(package)
    wanted = package if extra is None else f"penstock[{extra}]"
    return BadInputError(f"{needs} {package}; install it with: pip install '{wanted}'")


def find_extra(module: str) -> str | None:
    """Return the first extra that installs a module; None if no extra does.

    A distribution and its module have the same name except for `-` and `_`, which holds for all that Penstock uses.
    """
    return _extras().get(module.partition(".")[0].lower().replace("-", "_"))


def require_packages(*modules: str, needs: str = "this needs") -> None:
    """Raise the error of `missing_package` for the first module that is not installed.

    For work that another process does: its own failure to import would only be in its log.
    """
    for module in modules:
        if not is_installed(module):
            raise missing_package(module, needs)


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except ValueError:  # None in sys.modules, which forbids the import
        return False


@cache
def _extras() -> dict[str, str]:
    try:
        declared = requires("penstock") or []
    except PackageNotFoundError:
        return {}
    by_module: dict[str, str] = {}
    for line in declared:
        match = _REQUIREMENT.match(line)
        if match and match[2] not in UMBRELLAS:
            by_module.setdefault(match[1].lower().replace("-", "_"), match[2])
    return by_module
