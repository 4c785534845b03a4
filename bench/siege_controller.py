"""The controller that `bench/siege.py` attacks: a real `penstock controller up --simulated`, and plain HTTP to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from penstock.base.clock import Stopwatch, pause

START_SECONDS = 90.0
SOFT_FILES = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""Open files that the controller may have unless it asks for more: the limit of a login shell."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes | None = None
    holder: str | None = "write"
    """Whose token it has: write, read, none, or this text instead of a token."""
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None
    """Bytes to send instead of a request made from the fields above."""
    seconds: float = 30.0
    leaves: bool = False
    """The client hangs up after `seconds`, or as soon as an answer has begun, and expects nothing."""

    def __str__(self) -> str:
        what = self.raw if self.raw is not None else self.body or b""
        return f"{self.method} {self.path[:150]} {what[:700].decode('utf-8', 'replace')}"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    seconds: float
    link: str | None = None

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class StartError(Exception):
    """The documented command did not start a controller; its text is what it printed."""


@dataclass
class Siege:
    """One folder of state, and whichever process of the controller serves it at the moment."""

    folder: Path
    options: tuple[str, ...]
    code: Path
    """Folder with the attackers' Python modules and files."""
    host: str = "127.0.0.1"
    port: int = 0
    pid: int = 0
    tokens: dict[str, str] = field(default_factory=dict)
    up: threading.Event = field(default_factory=threading.Event)
    """Set while the controller is meant to answer: clients wait for it."""
    generation: int = 0
    """Counts kills: a request that saw two of them may have met a dead controller."""

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(self.code), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PENSTOCK_STATE": str(self.folder), "PYTHONPATH": path}

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the command line, with the limits of a login shell and not those of this process."""
        limited = ["/bin/sh", "-c", f'ulimit -Sn {SOFT_FILES}; exec "$@"', "sh"]
        command = [*limited, sys.executable, "-m", "penstock", *words]
        return subprocess.Popen(
            command, cwd=self.code, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def start(self) -> None:
        """Start the controller by the documented command, and raise StartError if that fails."""
        process = self.command("up", "--simulated", "--json", *self.options)
        try:
            printed, complaint = process.communicate(timeout=START_SECONDS)
        except subprocess.TimeoutExpired as late:
            process.kill()
            raise StartError(f"`penstock controller up` did not return within {START_SECONDS:.0f} s") from late
        if process.returncode:
            raise StartError(complaint.decode("utf-8", "replace").strip())
        found = json.loads(printed)
        self.host, _, port = found["url"].removeprefix("http://").rpartition(":")
        self.port = int(port)
        self.tokens = {
            "write": Path(found["token_file"]).read_text(),
            "read": Path(found["read_token_file"]).read_text(),
        }
        self.tokens = {kind: token.strip() for kind, token in self.tokens.items()}
        self.pid = json.loads((self.folder / "controller" / "running.json").read_text())["pid"]
        self.up.set()

    def start_and_kill(self, after_seconds: float) -> bool:
        """Start the controller and kill it `after_seconds`, usually before it answers; tell whether it was there."""
        process = self.command("up", "--simulated", "--json", *self.options)
        watch, killed = Stopwatch(), False
        while watch.seconds() < START_SECONDS and process.poll() is None:
            servers = psutil.Process(process.pid).children(recursive=True) if psutil.pid_exists(process.pid) else []
            if servers and watch.seconds() > after_seconds:
                for server in servers:
                    server.send_signal(signal.SIGKILL)
                killed = True
                break
            pause(0.02)
        process.communicate(timeout=START_SECONDS)
        return killed

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait until it is gone."""
        self.up.clear()
        self.generation += 1
        os.kill(self.pid, signal.SIGKILL)
        self._wait_until_gone()

    def _wait_until_gone(self) -> None:
        watch = Stopwatch()
        while self.alive() and watch.seconds() < 10:
            pause(0.005)

    def alive(self) -> bool:
        try:
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def stop(self) -> None:
        """End the controller for good, however it is."""
        self.up.clear()
        self.generation += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.command("down").communicate(timeout=20)
        if self.pid and self.alive():
            os.kill(self.pid, signal.SIGKILL)
            self._wait_until_gone()

    def memory_mb(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / 2**20 if self.alive() else 0.0

    def log_tail(self, size: int = 1500) -> str:
        """The last exception that ended a thread, or else the end of the log."""
        log = self.folder / "controller" / "controller.log"
        text = log.read_bytes()[-5_000_000:].decode("utf-8", "replace") if log.exists() else ""
        start = text.rfind("Exception in thread")
        if start < 0:
            return text[-size:]
        kept: list[str] = []
        for line in text[start:].splitlines()[2:]:
            kept.append(line)
            if not line.startswith(" "):
                break
        return "\n".join(kept)[-size:]

    def log_about(self, answer: str) -> str:
        """The exception that the log has under the number that an answer of 500 names."""
        number = re.search(r"under ([0-9a-f]+)", answer)
        log = self.folder / "controller" / "controller.log"
        text = log.read_bytes()[-5_000_000:].decode("utf-8", "replace") if number and log.exists() else ""
        return text[text.find(number[1]) :][:8000].partition("\n20")[0][-900:] if number and number[1] in text else ""

    def connect(self, seconds: float) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=seconds)

    def bytes_of(self, request: Request) -> bytes:
        if request.raw is not None:
            return request.raw.replace(b"@WRITE@", self.tokens["write"].encode())
        headers = {"Host": f"{self.host}:{self.port}", "Connection": "close"}
        if request.holder:
            headers["Authorization"] = f"Bearer {self.tokens.get(request.holder, request.holder)}"
        if request.body is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(request.body))}
        headers |= dict(request.headers)
        lines = [f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {one}" for name, one in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogatepass") + (request.body or b"")

    def send(self, request: Request) -> Answer | None:
        """Send one request over a connection of its own; None if no answer came."""
        watch = Stopwatch()
        try:
            with self.connect(request.seconds) as link:
                link.sendall(self.bytes_of(request))
                if request.raw is not None:
                    link.shutdown(socket.SHUT_WR)
                answer = http.client.HTTPResponse(link, method=request.method)
                answer.begin()
                body = b"" if request.leaves else answer.read()
                return Answer(answer.status, body, watch.seconds(), answer.headers.get("Link"))
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def ask(
        self, method: str, path: str, body: Any = None, holder: str = "write", seconds: float = 30.0
    ) -> Answer | None:
        data = None if body is None else json.dumps(body).encode()
        return self.send(Request(method, path, data, holder, seconds=seconds))

    def rows(self, path: str, holder: str = "write") -> list[dict[str, Any]] | None:
        """All rows of a list, page by page (an answer has at most 1,000); None if a page was not answered."""
        found: list[dict[str, Any]] = []
        while path:
            answer = self.ask("GET", path, holder=holder)
            if answer is None or answer.status != 200:
                return None
            found += answer.document
            link = (answer.link or "").partition(">")[0]
            path = "/v1/" + link.partition("/v1/")[2] if "/v1/" in link else ""
        return found
