"""The folder of a run: what it is, who conducts it, what it was asked, how it stands.

run.json        what runs: pipeline, options; enough to go on after its process died
conductor       locked by the process that conducts it; the system lets go of the lock when that process dies
state.json      how it stands, written anew about once a second
requests/       questions of other processes; each is answered beside it
schemas.json    what was seen of code that does not say what it sends
checkpoint/     Spark's own (unless it is elsewhere), audit/, crumbs/, log
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, PenstockError
from penstock.base.files import parse_json, private_folder, quoted, read_text, write_text
from penstock.base.text_checks import is_whole
from penstock.runs.config import FUSED
from penstock.runs.description import RunDescription, parse_description
from penstock.runs.folder_permissions import close_to_others
from penstock.spark.session.hadoop import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER_SECONDS = 60.0


class RunState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    ENDED = "ended"
    """Its time, or its input, came to an end, or it was drained or stopped."""
    FAILED = "failed"
    LOST = "lost"
    """Its process died: `resume` goes on with it."""


_MOVES = {
    RunState.STARTING: {RunState.RUNNING, RunState.FAILED},
    RunState.RUNNING: {RunState.DRAINING, RunState.ENDED, RunState.FAILED},
    RunState.DRAINING: {RunState.ENDED, RunState.FAILED},
}
"""What a run that lives may become; `lost` is what others see of one whose process is gone."""


def moved(state: RunState, to: RunState) -> RunState:
    """`to`, if a run can become that."""
    if to not in _MOVES.get(state, set()):
        raise AssertionError(f"a run that is {state} does not become {to}")
    return to


class RunBusyError(PenstockError):
    """Another process conducts the run."""


class FusedRunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        close_to_others(private_folder(self.path), "run.json")
        private_folder(self.path / "requests")

    @property
    def has_run(self) -> bool:
        return (self.path / "run.json").exists()

    @property
    def has_begun(self) -> bool:
        """Whether some batch was: sinks may hold something of it. A checkpoint elsewhere may know of one."""
        if not self.has_run:
            return False
        if not self.is_own_checkpoint(self.description().config.checkpoint):
            return True
        offsets = self.path / "checkpoint" / "offsets"
        return offsets.is_dir() and any(is_whole(entry.name) for entry in offsets.iterdir())

    def own_checkpoint(self, *, local_by_default: bool) -> str:
        """That of a run nobody gave another place: in the folder, also where paths without a scheme lie on another file
        system than this machine's. One that began without a scheme goes on so, wherever that led it."""
        inside = str(self.path / "checkpoint")
        began_so = self.has_run and self.description().config.checkpoint == inside
        return inside if local_by_default or began_so else f"{LOCAL}{inside}"

    def is_own_checkpoint(self, checkpoint: str | None) -> bool:
        return checkpoint is None or checkpoint.removeprefix(LOCAL) == str(self.path / "checkpoint")

    def describe(self, description: RunDescription) -> None:
        write_text(self.path / "run.json", description.model_dump_json(indent=2))

    def describe_slots(self, slots: int) -> None:
        """Of a run that goes on with others, each with the threads it had; batches are sized for them."""
        known = self.description()
        rows = max(1, known.most_rows * slots // known.slots)
        self.describe(known.model_copy(update={"config": replace(known.config, slots=slots), "most_rows": rows}))

    def description(self) -> RunDescription:
        file = self.path / "run.json"
        if not file.exists():
            raise BadInputError(f"{self.path}: no run was started there")
        described = parse_description(parse_json(read_text(file), str(file)), str(file))
        if described.engine != FUSED:
            raise BadInputError(f"{file}: expected the description of a fused run")
        return described

    # -- who conducts it -------------------------------------------------------------------------------------------

    @contextmanager
    def conducting(self) -> Iterator[None]:
        """Nobody else conducts the run inside the block, on any machine that shares the folder's locks."""
        handle = os.open(self.path / "conductor", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunBusyError(f"{self.path}: {self.conductor()} conducts this run already") from error
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
            yield
        finally:
            os.close(handle)

    def conductor(self) -> str:
        with suppress(BadInputError):
            return quoted(read_text(self.path / "conductor").strip()) or "another process"
        return "another process"

    @property
    def is_conducted(self) -> bool:
        try:
            handle = os.open(self.path / "conductor", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    # -- how it stands ---------------------------------------------------------------------------------------------

    def write_state(self, state: RunState, **more: Any) -> None:
        write_text(self.path / "state.json", json.dumps({"state": state.value, **more}))

    def state(self) -> tuple[RunState, dict[str, Any]]:
        """As written last; one that says it lives and whose process is gone is lost."""
        try:
            document = parse_json(read_text(self.path / "state.json"), str(self.path / "state.json"))
            state = RunState(document.pop("state"))
        except (BadInputError, ValueError, AttributeError, KeyError, TypeError):
            state, document = RunState.STARTING, {}
        if state not in {RunState.ENDED, RunState.FAILED} and not self.is_conducted:
            state = RunState.LOST
        return state, document

    # -- asking it something -----------------------------------------------------------------------------------------

    def ask(self, question: str, patience: float = ANSWER_SECONDS, **more: Any) -> dict[str, Any]:
        """Asks whoever conducts the run, and waits for the answer."""
        if not self.is_conducted:
            raise BadInputError(f"{self.path}: nobody conducts this run; `resume` goes on with it")
        (self.path / "requests").mkdir(exist_ok=True, mode=0o700)
        name = secrets.token_hex(8)
        write_text(self.path / "requests" / f"{name}.json", json.dumps({"ask": question, **more}))
        answer = self.path / "requests" / f"{name}.answer"
        waited = Stopwatch()
        while not answer.exists():
            if waited.seconds() > patience or not self.is_conducted:
                (self.path / "requests" / f"{name}.json").unlink(missing_ok=True)
                why = f"no answer within {patience:g} s" if self.is_conducted else "the run ended meanwhile"
                raise BadInputError(f"{self.path}: {question}: {why}")
            pause(0.05)
        document = parse_json(read_text(answer), str(answer))
        answer.unlink()
        if not isinstance(document, dict):
            raise BadInputError(f"{answer}: expected an answer, found {type(document).__name__}")
        if "error" in document:
            raise BadInputError(str(document["error"]))
        return document

    def questions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What was asked since the last look. What is no question is removed: it ends nothing that lives."""
        for file in sorted((self.path / "requests").glob("*.json")):
            if file.name.startswith("."):
                continue  # somebody is still writing it
            try:
                document = parse_json(read_text(file), str(file))
            except BadInputError:
                document = None
            with suppress(OSError):  # a folder of that name is no question either
                file.unlink()
            if isinstance(document, dict) and isinstance(document.get("ask"), str):
                yield file.stem, document

    def answer(self, name: str, **answer: Any) -> None:
        write_text(self.path / "requests" / f"{name}.answer", json.dumps(answer))
