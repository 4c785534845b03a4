"""What-if questions in a process of their own: they use neither the threads nor the interpreter that answer others, and
one whose client has left is ended."""

from __future__ import annotations

import asyncio
import io
import json
import pickle
import subprocess
import sys
import weakref
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread

from penstock.base.errors import BadInputError, nearest
from penstock.control.errors import ConflictError, FieldError, NotFoundError
from penstock.control.sizing import ModelSizing
from penstock.control.what_if import MOST_SECONDS, Question
from penstock.planning.registry import SHARERS
from penstock.service.http import TooManyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.contracts import Sizing
    from penstock.control.core.records import ControllerState


MAX_ASKED = 4
"""Questions of holders of one token: one is computed, the others wait."""
MAX_SECONDS = 30.0
"""Max seconds to compute one question."""
IDLE_SECONDS = 60.0
"""Seconds without a question after which the process ends."""
LENGTH_BYTES = 8
REFUSED = "refused"
"""The key of an answer that is an error of the client."""


class WhatIfLane:
    """One question at a time."""

    def __init__(self) -> None:
        self._asked = 0
        self._lock = asyncio.Lock()
        self._thread = CapacityLimiter(2)
        """One more than is computed: that of a question that was cancelled may still be ending."""
        self._process: subprocess.Popen[bytes] | None = None
        self._end_process: weakref.finalize[Any, Any] | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, state: ControllerState, sizing: Sizing, question: Question, now: float) -> dict[str, Any]:
        if self._asked >= MAX_ASKED:
            raise TooManyError(f"{MAX_ASKED} what-if questions with this token are waiting; ask again when one is done")
        self._asked += 1
        try:
            async with self._lock:
                return await self._answer(sizing, (state, question, now))
        finally:
            self._asked -= 1

    async def _answer(self, sizing: Sizing, question: Any) -> dict[str, Any]:
        if self._idle is not None:
            self._idle.cancel()
        process, first = self._running(sizing)
        sent = first + _framed(question)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                raw = await to_thread.run_sync(_exchange, process, sent, limiter=self._thread, abandon_on_cancel=True)
        except TimeoutError as error:
            self._end()
            raise BadInputError(
                f"seconds: this took more than {MAX_SECONDS:g} s; ask for fewer seconds, nodes or a lower rate"
            ) from error
        except BaseException:
            # cancelled, or the process died: its result is of no use to the next
            self._end()
            raise
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)
        # a figure that is none is left out: JSON has no way to write it
        answer: dict[str, Any] = json.loads(raw, parse_constant=lambda _: None)
        if REFUSED in answer:
            raise (BadInputError if answer["bad_input"] else ConflictError)(answer[REFUSED])
        return answer

    def _running(self, sizing: Sizing) -> tuple[subprocess.Popen[bytes], bytes]:
        """The process, and what a new one is sent first."""
        if self._process is not None and self._process.poll() is not None:
            self._end()
        first = b""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.service.what_if_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal is for the controller, which ends this one
                start_new_session=True,
            )
            self._end_process = weakref.finalize(self, _kill, self._process)
            if isinstance(sizing, ModelSizing):
                # without its cache, which grows: the process has a cache of its own
                sizing = ModelSizing(sizing.library, sizing.unit_slots, sizing.allocator)
            first = _framed(sizing)
        return self._process, first

    def _end(self) -> None:
        if self._end_process is not None:
            self._end_process()
        self._process = None


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _exchange(process: subprocess.Popen[bytes], data: bytes) -> bytes:
    """Blocks until the answer is there, or the process has ended."""
    if process.stdin is None or process.stdout is None:
        raise AssertionError("the process was started with pipes")
    try:
        process.stdin.write(data)
        process.stdin.flush()
        length = int.from_bytes(process.stdout.read(LENGTH_BYTES), "big")
        answer = process.stdout.read(length)
    except (OSError, ValueError):
        answer = b""
    if not answer:
        raise BadInputError("seconds: the simulation ended early; ask for fewer seconds or nodes")
    return answer


def proxy(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


class _StatePickler(pickle.Pickler):
    """Records hold read-only mappings, which pickle does not know."""

    dispatch_table = {MappingProxyType: lambda mapping: (proxy, (dict(mapping),))}  # noqa: RUF012 - as pickle wants it


def _framed(value: Any) -> bytes:
    """Frame a value for our own process over its pipe; no other input is ever read this way."""
    buffer = io.BytesIO()
    _StatePickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    data = buffer.getvalue()
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


# Parse a what-if question from the parameters of an address.


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
