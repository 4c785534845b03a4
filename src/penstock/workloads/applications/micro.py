"""Operators that are bound by one thing: those of 003's micro-benchmark, and the two kinds of 001's.

CPU: 30,000 random numbers. I/O: parsing JSON. Sojourn: 10 ms of waiting. Memory: what came in the last 300 s is kept,
and looked over every 60 s. Selectivity: how many tuples each sends for one it gets; a whole number and a part, sent for
as many tuples as make it true on average.
"""

from __future__ import annotations

import json
from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.clock import Stopwatch, pause
from penstock.dataflow.logic import Logic
from penstock.workloads.applications.messages import payload
from penstock.workloads.incoming import message_of

if TYPE_CHECKING:
    from collections.abc import Callable

RANDOM_NUMBERS = 30_000
SOJOURN_SECONDS = 0.010
WINDOW_SECONDS, SLIDE_SECONDS = 300.0, 60.0
SCHEMA = "id bigint, text string"


def _message(row: dict[str, Any]) -> dict[str, Any]:
    if "id" in row:
        return {"id": row["id"], "text": row["text"]}
    message = message_of(row, payload)
    return {"id": int(message["id"]), "text": str(message["text"])}


def copies(number: int, selectivity: float, place: int) -> int:
    """How many tuples the operator at `place` sends for tuple `number`: floor(s), and one more for as many of them as
    s - floor(s) says. Which ones follows from both numbers, as good as by chance: copies keep their number, and of k
    operators in a row that all chose the same tuples, the last would not send s^k for one, on average."""
    whole = int(selectivity)
    part = selectivity - whole
    if not part:
        return whole
    digest = blake2b(f"{number}@{place}".encode(), digest_size=4).digest()
    return whole + (int.from_bytes(digest) < part * 2**32)


def _sent(message: dict[str, Any], selectivity: float, place: int) -> list[dict[str, Any]]:
    return [message] * copies(message["id"], selectivity, place)


def cpu_bound(selectivity: float = 1.0, place: int = 0) -> Logic:
    def draw(row: dict[str, Any]) -> list[dict[str, Any]]:
        message = _message(row)
        np.random.default_rng(message["id"]).random(RANDOM_NUMBERS)
        return _sent(message, selectivity, place)

    return Logic(draw, schema=SCHEMA)


def io_bound(selectivity: float = 1.0, place: int = 0) -> Logic:
    def parse(row: dict[str, Any]) -> list[dict[str, Any]]:
        return _sent(json.loads(json.dumps(_message(row))), selectivity, place)

    return Logic(parse, schema=SCHEMA)


def sojourn_bound(selectivity: float = 1.0, place: int = 0) -> Logic:
    def wait(row: dict[str, Any]) -> list[dict[str, Any]]:
        pause(SOJOURN_SECONDS)
        return _sent(_message(row), selectivity, place)

    return Logic(wait, schema=SCHEMA)


class Kept:
    """Messages of a sliding window, oldest first; they are let go when it slides. `seconds` is the time it goes by."""

    def __init__(self, seconds: Callable[[], float] | None = None) -> None:
        self._seconds = seconds or Stopwatch().seconds
        self._slid = 0.0
        self.messages: deque[tuple[float, dict[str, Any]]] = deque()

    def take(self, message: dict[str, Any]) -> None:
        at = self._seconds()
        self.messages.append((at, message))
        if at - self._slid >= SLIDE_SECONDS:
            self._slid = at
            while self.messages and self.messages[0][0] < at - WINDOW_SECONDS:
                self.messages.popleft()


def memory_bound(selectivity: float = 1.0, place: int = 0) -> Logic:
    def keep(row: dict[str, Any], kept: Kept) -> list[dict[str, Any]]:
        message = _message(row)
        kept.take(message)
        return _sent(message, selectivity, place)

    return Logic(keep, schema=SCHEMA, open=Kept)


def pass_on(row: dict[str, Any]) -> dict[str, Any]:
    """Next to nothing: what limits is moving tuples."""
    return _message(row)


cpu, io, sojourn, memory = cpu_bound(), io_bound(), sojourn_bound(), memory_bound()
network = Logic(pass_on, schema=SCHEMA)

BOUND: dict[str, Callable[[float, int], Logic]] = {
    "cpu": cpu_bound,
    "io": io_bound,
    "sojourn": sojourn_bound,
    "memory": memory_bound,
}


def __getattr__(name: str) -> Logic:
    """`io*1.5@2`: the code of a kind with a selectivity, at a place of its pipeline, by a name, so that a file or plan
    can say which."""
    kind, _, times = name.partition("*")
    selectivity, _, place = times.partition("@")
    try:
        return BOUND[kind](float(selectivity), int(place or 0))
    except (KeyError, ValueError) as error:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'") from error
