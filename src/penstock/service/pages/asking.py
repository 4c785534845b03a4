"""A what-if question from the words of an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.errors import FieldError, NotFoundError
from penstock.control.what_if import MOST_SECONDS, Question
from penstock.errors import BadInputError, nearest
from penstock.sharing.registry import SHARERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import ControllerState

DEFAULT_SECONDS = 300.0


def asked_question(words: Mapping[str, str], state: ControllerState) -> Question:
    """`pipeline`, and any of `rate`, `priority`, `nodes`, `policy`, `seconds`; empty words count as missing."""
    name = words.get("pipeline", "")
    if name not in state.pipelines:
        raise NotFoundError(f"no pipeline '{name}'; {nearest(name, state.pipelines)}")
    sharing = words.get("policy") or None
    if sharing is not None:
        try:
            SHARERS.create(sharing)
        except BadInputError as error:
            raise FieldError("policy", str(error)) from error
    rate = _number(words, "rate", 1e-6, 1e12)
    seconds = _number(words, "seconds", 10.0, MOST_SECONDS)
    return Question(
        pipeline=name,
        rate=rate,
        priority=_count(words, "priority", 1000),
        nodes=_count(words, "nodes", 10_000),
        sharing=sharing,
        seconds=DEFAULT_SECONDS if seconds is None else seconds,
    )


def _number(words: Mapping[str, str], name: str, least: float, most: float) -> float | None:
    text = words.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise FieldError(name, f"expected a number from {least:g} to {most:g}, found '{text[:40]}'")
    return value


def _count(words: Mapping[str, str], name: str, most: int) -> int | None:
    text = words.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise FieldError(name, f"expected a whole number from 1 to {most}, found '{text[:40]}'")
    return int(text)
