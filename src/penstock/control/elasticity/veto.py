"""A hook of the user's that may forbid a change: `module:attribute`, called with the verdict as plain values. It
answers nothing (let it be) or a reason. Code that fails forbids nothing and is said in the log."""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInputError
from penstock.jobs.find import find_code_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.elasticity.verdict import SizeVerdict

log = logging.getLogger("penstock.control")


@lru_cache(maxsize=64)
def veto_of(name: str) -> Callable[[SizeVerdict], str | None] | None:
    """None where none is named."""
    if not name:
        return None
    code = find_veto(name)

    def asked(verdict: SizeVerdict) -> str | None:
        plain = {
            "kind": str(verdict.kind),
            "units": verdict.units,
            "why": verdict.why,
            "expected": dict(verdict.expected),
        }
        try:
            answer = code(plain)
        except Exception as error:
            log.warning("veto %s: %s", name, error)
            return None
        return None if not answer else str(answer)

    return asked


def find_veto(name: str) -> Callable[[dict[str, Any]], Any]:
    module, _, attribute = name.partition(":")
    find_code_in(Path.cwd())
    try:
        code = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInputError(f"veto '{name}': expected module:attribute of a function: {error}") from error
    if not callable(code):
        raise BadInputError(f"veto '{name}': it is no function")
    veto: Callable[[dict[str, Any]], Any] = code
    return veto
