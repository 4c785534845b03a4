"""What-if questions in a process of their own: they use neither the threads nor the interpreter that answer others, and
one whose client has left is ended."""

from __future__ import annotations

import asyncio
import io
import json
import pickle
import sys
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.control.errors import ConflictError
from penstock.control.sizing import ModelSizing
from penstock.errors import BadInputError
from penstock.service.http import TooManyError

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from penstock.control.core.records import ControllerState
    from penstock.control.core.sizing import Sizing
    from penstock.control.what_if import Question

MAX_ASKED = 4
"""Questions of holders of one token: one is computed, the others wait."""
MAX_SECONDS = 30.0
"""One question may be computed for so long."""
IDLE_SECONDS = 60.0
"""The process ends after so long without a question."""
LENGTH_BYTES = 8
REFUSED = "refused"
"""The key of an answer that is an error of whoever asked."""


class WhatIfLane:
    """One question at a time."""

    def __init__(self) -> None:
        self._asked = 0
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
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
            self._idle = None
        try:
            async with asyncio.timeout(MAX_SECONDS):
                process = await self._running(sizing)
                raw = await _exchange(process, _pickled(question))
        except TimeoutError as error:
            self._end()
            raise BadInputError(
                f"seconds: this took more than {MAX_SECONDS:g} s; ask for fewer seconds, nodes or a lower rate"
            ) from error
        except BaseException:
            # cancelled, or the process died: what it computes is of no use to the next
            self._end()
            raise
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)
        # a figure that is none is left out: JSON has no way to write it
        answer: dict[str, Any] = json.loads(raw, parse_constant=lambda _: None)
        if REFUSED in answer:
            raise (BadInputError if answer["bad_input"] else ConflictError)(answer[REFUSED])
        return answer

    async def _running(self, sizing: Sizing) -> Process:
        loop = asyncio.get_running_loop()
        if self._process is not None and (self._loop is not loop or self._process.returncode is not None):
            self._end()
        if self._process is None:
            self._loop = loop
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "penstock.service.what_if_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # Ctrl-C in a terminal is for the controller, which ends this one
                start_new_session=True,
            )
            if isinstance(sizing, ModelSizing):
                # without what it remembers, which grows: the process remembers for itself
                sizing = ModelSizing(sizing.library, sizing.unit_slots, sizing.allocator)
            _send(self._process, _pickled(sizing))
        return self._process

    def _end(self) -> None:
        process, self._process, self._idle = self._process, None, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()


def _send(process: Process, data: bytes) -> None:
    if process.stdin is None:
        raise AssertionError("the process was started with a pipe")
    process.stdin.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)


async def _exchange(process: Process, data: bytes) -> bytes:
    _send(process, data)
    if process.stdin is None or process.stdout is None:
        raise AssertionError("the process was started with pipes")
    try:
        await process.stdin.drain()
        length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
        return await process.stdout.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise BadInputError("seconds: the simulation ended early; ask for fewer seconds or nodes") from error


def proxy(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


class _StatePickler(pickle.Pickler):
    """Records hold read-only mappings, which pickle does not know."""

    dispatch_table = {MappingProxyType: lambda mapping: (proxy, (dict(mapping),))}  # noqa: RUF012 - as pickle wants it


def _pickled(value: Any) -> bytes:
    """For our own process over its pipe; nothing from elsewhere is ever read so."""
    buffer = io.BytesIO()
    _StatePickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()
