"""The code of an operator, wherever the pipeline says it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from penstock.dataflow.logic import Logic, find_function, find_logic
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.dataflow.pipeline import Operator

_SAID_BESIDE = {"per": "per", "schema": "schema_", "timeout_seconds": "timeout_seconds", "on_error": "on_error"}


def code_of(operator: Operator) -> Logic | None:
    """Given in Python, or named by `run`; what the operator says beside it counts. None: it has none of its own."""
    if operator.logic is not None:
        given = operator.logic
        return given if isinstance(given, Logic) else Logic(given)
    if operator.run is None:
        return None
    beside = {key: getattr(operator, field) for key, field in _SAID_BESIDE.items()}
    settings = {key: value for key, value in beside.items() if value is not None}
    try:
        return find_logic(operator.run).with_fields(**settings)
    except BadInputError as error:
        raise BadInputError(f"operator '{operator.name}': {error}") from error


def address_of(code: Any) -> str | None:
    """module:attribute where a function of a module (or a `Logic`) is found again by whoever imports it; None: it has
    no such name."""
    function = code.function if isinstance(code, Logic) else code
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in {None, "__main__"} or not name.isidentifier():
        return None
    there = getattr(sys.modules.get(module), name, None)
    return f"{module}:{name}" if there is function or (isinstance(there, Logic) and there == code) else None


def said_in_a_file(operator: Operator) -> dict[str, str | float] | None:
    """What a file says of code that was given in Python; None: a file cannot name it."""
    if any(said_in_a_file(part) is None for part in operator.chain):
        return None
    keys: dict[str, str | float] = {}
    for key, code in (("frame", operator.frame_code), ("write", operator.write_code), ("run", operator.logic)):
        if code is None:
            continue
        address = address_of(code)
        if address is None:
            return None
        keys[key] = address
    if operator.logic is None:
        return keys
    code = code_of(operator)
    named = find_logic(str(keys["run"]))
    if code is None or (code.open, code.close) != (named.open, named.close):
        return None
    wanted = {key: getattr(code, key) for key in _SAID_BESIDE}
    return {**keys, **{key: value for key, value in wanted.items() if value != getattr(named, key)}}


def frame_function(operator: Operator) -> Callable[[Any], Any] | None:
    """Of a source: what makes its DataFrame."""
    return _function(operator, operator.frame_code, operator.frame, "frame")


def write_function(operator: Operator) -> Callable[[Any, int], None] | None:
    """Of a sink: what takes its batches."""
    return _function(operator, operator.write_code, operator.write, "write")


def _function(operator: Operator, code: Any, address: str | None, key: str) -> Callable[..., Any] | None:
    if code is not None or address is None:
        return code  # type: ignore[no-any-return] # the builder takes functions only
    try:
        return find_function(address, key)
    except BadInputError as error:
        raise BadInputError(f"operator '{operator.name}': {error}") from error
