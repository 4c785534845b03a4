"""Code of users (`module:attribute` of triggers and vetoes), each in a process of its own with a time limit. Callers
never wait: a question is put, and its answer fetched later. Code that hangs, exits, raises or answers nonsense is
an error in words; its process is ended, and started again with the next question.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch
from penstock.control.errors import FieldError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

CODE_SECONDS = 2.0
"""Max seconds a function may take to answer."""
IMPORT_SECONDS = 15.0
"""Max seconds its module may take to import."""
IDLE_SECONDS = 120.0
"""Seconds without a question after which a process is ended."""
MOST_PROCESSES = 24
"""The one that was asked longest ago makes room for another."""
MOST_ANSWERS = 10_000
LONGEST_ANSWER = 65_536
CHILD = Path(__file__).with_name("code_child.py")


@dataclass(frozen=True, slots=True)
class CodeAnswer:
    value: Any = None
    error: str | None = None
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class _Asked:
    key: Hashable
    argument: Mapping[str, Any]
    truth: bool


class NoAnswerError(Exception):
    """A message for the user who named the code."""


class UserCode:
    def __init__(
        self, folder: Path | None = None, seconds: float = CODE_SECONDS, import_seconds: float = IMPORT_SECONDS
    ) -> None:
        """`folder`: modules are found there too; by default the working directory."""
        self._folder = folder
        self._seconds = seconds
        self._import_seconds = import_seconds
        self._lock = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        """Processes by code, the least recently asked first."""
        self._answers: dict[Hashable, tuple[CodeAnswer, Stopwatch]] = {}

    def check(self, code: str, field: str) -> None:
        """Raise if the code is missing, is no function, or takes too long to import. Waits for the import."""
        process = _Process(code, self._folder, self._seconds)
        try:
            process.start(self._import_seconds)
        except NoAnswerError as error:
            raise FieldError(field, f"'{code}': {error}") from error
        finally:
            process.end()

    def ask(self, key: Hashable, code: str, argument: Mapping[str, Any], *, truth: bool = False) -> None:
        """The answer comes under `key`; a question that still waits there is replaced by this one."""
        with self._lock:
            worker = self._workers.pop(code, None)
            if worker is None or worker.ended:
                if len(self._workers) >= MOST_PROCESSES:
                    self._workers.pop(next(iter(self._workers))).stop()
                worker = _Worker(_Process(code, self._folder, self._seconds), self._import_seconds, self._keep)
            self._workers[code] = worker
        worker.put(_Asked(key, argument, truth))

    def answer(self, key: Hashable, within: float = inf) -> CodeAnswer | None:
        """The last there is, if it is no older than `within` seconds; None while there is none."""
        with self._lock:
            answer, since = self._answers.get(key, (None, Stopwatch()))
            return answer if since.seconds() <= within else None

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._answers.pop(key, None)

    def _keep(self, key: Hashable, answer: CodeAnswer) -> None:
        with self._lock:
            self._answers.pop(key, None)
            self._answers[key] = (answer, Stopwatch())
            while len(self._answers) > MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]

    def close(self) -> None:
        with self._lock:
            workers = list(self._workers.values())
            self._workers.clear()
        for worker in workers:
            worker.stop()


class _Worker:
    """Puts the questions of one code to its process, one after the other."""

    def __init__(self, process: _Process, import_seconds: float, keep: Any) -> None:
        self._process = process
        self._import_seconds = import_seconds
        self._keep = keep
        self._waiting: dict[Hashable, _Asked] = {}
        self._changed = threading.Condition()
        self.ended = False
        threading.Thread(target=self._work, name=f"code {process.code}", daemon=True).start()

    def put(self, asked: _Asked) -> None:
        with self._changed:
            self._waiting[asked.key] = asked
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify()
        self._process.end()

    def _work(self) -> None:
        while (asked := self._next()) is not None:
            try:
                self._process.start(self._import_seconds)
                answer = CodeAnswer(self._process.ask(asked.argument, truth=asked.truth))
            except NoAnswerError as error:
                self._process.end()
                answer = CodeAnswer(error=str(error))
            self._keep(asked.key, answer)
        self._process.end()

    def _next(self) -> _Asked | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.ended, IDLE_SECONDS)
            if not self._waiting or self.ended:
                self.ended = True
                return None
            return self._waiting.pop(next(iter(self._waiting)))


class _Process:
    def __init__(self, code: str, folder: Path | None, seconds: float) -> None:
        self.code = code
        self._folder = folder
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""

    def start(self, seconds: float) -> None:
        """Start the process unless it runs already."""
        if self._process is not None:
            return
        self._read = b""
        try:
            folder = self._folder or Path.cwd()
            self._process = subprocess.Popen(  # noqa: S603 - whoever has the token may name code; it runs apart from us
                [sys.executable, "-P", str(CHILD), self.code, str(folder), str(self._seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            raise NoAnswerError(f"its process cannot be started: {error}") from error
        if self._line(seconds, "to import").get("ready") is not True:
            raise NoAnswerError("it says nothing that can be understood")

    def ask(self, argument: Mapping[str, Any], *, truth: bool) -> Any:
        process = self._process
        if process is None or process.stdin is None:
            raise NoAnswerError("its process was ended")
        try:
            process.stdin.write(json.dumps({"argument": dict(argument), "truth": truth}).encode() + b"\n")
        except (OSError, ValueError, TypeError) as error:
            raise NoAnswerError(f"its process has ended: {error}") from error
        answer = self._line(self._seconds, "to answer")
        value = answer.get("answer")
        if "answer" not in answer or not isinstance(value, float if truth else str | None):
            raise NoAnswerError("it says nothing that can be understood")
        return value

    def _line(self, seconds: float, what: str) -> dict[str, Any]:
        process, watch = self._process, Stopwatch()
        if process is None or process.stdout is None:
            raise NoAnswerError("its process was ended")
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                left = seconds - watch.seconds()
                if left <= 0 or not selector.select(left):
                    raise NoAnswerError(f"it takes more than {seconds:g} s {what}")
                try:
                    more = os.read(process.stdout.fileno(), LONGEST_ANSWER)
                except (OSError, ValueError):
                    more = b""
                if not more:
                    raise NoAnswerError("it has ended its process")
                self._read += more
                if len(self._read) > LONGEST_ANSWER:
                    raise NoAnswerError("it says nothing that can be understood")
        line, _, self._read = self._read.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise NoAnswerError("it says nothing that can be understood") from error
        if not isinstance(answer, dict):
            raise NoAnswerError("it says nothing that can be understood")
        if "error" in answer:
            raise NoAnswerError(str(answer["error"]))
        return answer

    def end(self) -> None:
        """It, and whatever it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


USER_CODE = UserCode()
"""The instance of this process."""
atexit.register(USER_CODE.close)
