"""Asking something of a run from another process, through its folder: a request is a file, and so is its answer."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from penstock.clock import Stopwatch, pause
from penstock.errors import BadInputError, PenstockError
from penstock.files import Name, Spec, check, parse_json, read_text, write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

POLL_SECONDS = 0.05


class RunError(PenstockError):
    """A run that cannot do what it is asked for."""


class RunDescription(Spec):
    """What a folder says about its run, so that another process can go on with it."""

    pipeline: Name
    master: str
    generation: int
    plan: Name
    emitted: dict[str, int]
    load: dict[str, Any]
    routing: str
    segmenter: str
    segments: list[list[str]]
    """Of the plan that runs: a bundle of the run that goes on is what it was."""


@dataclass(frozen=True, slots=True)
class Request:
    """`ask` is drain, resume or stop; `plan` the plan to resume onto."""

    id: str
    ask: str
    plan: str | None = None


class RunFolder:
    """What a run and those who ask something of it agree on."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._requests = self.path / "requests"
        self._answers = self.path / "answers"

    def create(self) -> None:
        for folder in (self.path, self._requests, self._answers):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def description(self) -> dict[str, Any]:
        file = self.path / "run.json"
        if not file.is_file():
            raise BadInputError(f"{self.path}: no run was started in this folder")
        return check(RunDescription, parse_json(read_text(file), str(file)), str(file)).model_dump()

    def describe(self, document: Mapping[str, Any]) -> None:
        write_text(self.path / "run.json", json.dumps(document, indent=1) + "\n")

    def sign(self) -> None:
        """This process conducts the run."""
        own = psutil.Process()
        write_text(self.path / "conductor.json", json.dumps({"pid": own.pid, "started": own.create_time()}))

    @property
    def conducted(self) -> bool:
        """A live process conducts the run; a number alone may have been given to another."""
        file = self.path / "conductor.json"
        if not file.is_file():
            return False
        signed = json.loads(file.read_text("utf-8"))
        try:
            return bool(abs(psutil.Process(signed["pid"]).create_time() - signed["started"]) < 1.0)
        except psutil.NoSuchProcess:
            return False

    def sign_off(self) -> None:
        (self.path / "conductor.json").unlink(missing_ok=True)

    def requests(self) -> list[Request]:
        """Oldest first; a name with a dot is still being written."""
        files = sorted(self._requests.glob("[!.]*.json"), key=lambda file: file.stat().st_mtime_ns)
        return [Request(**json.loads(file.read_text("utf-8"))) for file in files]

    def answer(self, request: Request, document: Mapping[str, Any]) -> None:
        write_text(self._answers / f"{request.id}.json", json.dumps(document))
        (self._requests / f"{request.id}.json").unlink()

    def ask(self, ask: str, patience: float, plan: Path | None = None) -> dict[str, Any]:
        """Leave a request and wait for its answer."""
        request = Request(uuid.uuid4().hex, ask, None if plan is None else str(plan.absolute()))
        file = self._requests / f"{request.id}.json"
        write_text(file, json.dumps({"id": request.id, "ask": request.ask, "plan": request.plan}))
        answer = self._answers / f"{request.id}.json"
        waited = Stopwatch()
        while not answer.exists():
            if not self.conducted or waited.seconds() > patience:
                file.unlink(missing_ok=True)
                why = f"did not answer within {patience:g} s" if self.conducted else "ended meanwhile"
                raise RunError(f"{self.path}: the run {why}")
            pause(POLL_SECONDS)
        document: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        answer.unlink()
        if "error" in document:
            raise RunError(document["error"])
        return document
