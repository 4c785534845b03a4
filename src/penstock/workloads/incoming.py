"""What a source delivers to the operators behind it, as `value`: the number of a message, where the load generator
emits, or the message itself as JSON, where it comes from a topic.

Whatever is neither raises ValueError: the tuple becomes a dead letter.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def message_of(row: dict[str, Any], make: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """The message; `make` makes that of a number. It is parsed either way, so that both cost the same."""
    value = row["value"]
    if isinstance(value, int):
        return json.loads(json.dumps(make(value)))  # type: ignore[no-any-return] # parsed as any message is
    return parsed_message(value)


def line_of(row: dict[str, Any], make: Callable[[int], str]) -> str:
    """Return the message as a line of text; `make` makes that of a number."""
    value = row["value"]
    if isinstance(value, int):
        return make(value)
    return value if isinstance(value, str) else bytes(value).decode()


def number_of(row: dict[str, Any]) -> int:
    """The number of the message: what reference tasks work on, and send on to each other."""
    value = row["value"]
    return value if isinstance(value, int) else message_number(parsed_message(value))


def parsed_message(value: str | bytes | bytearray) -> dict[str, Any]:
    message = json.loads(value)
    if not isinstance(message, dict):
        raise ValueError(f"expected a JSON object, found {type(message).__name__}")
    return message


def message_number(message: dict[str, Any]) -> int:
    number = message.get("id")
    if not isinstance(number, int):
        raise ValueError(f"expected a message with a whole number as its id, found {number!r}")
    return number
