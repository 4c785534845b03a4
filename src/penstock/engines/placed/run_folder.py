"""A run's folder: what it is, who conducts it, its plans, and what is asked of it from other processes.

run.json            what runs, on which cluster, under which load
plans/NAME.json     plans it was started with or changed to; the last commit says which one counts
commits/, lease.json, state/, audit/    the checkpoint
requests/, answers/ a request is a file, and so is its answer
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import uuid
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, now, pause
from penstock.base.errors import BadInputError, RunError
from penstock.base.files import Name, Spec, check, parse_json, private_folder, read_text
from penstock.base.lease import RENEW_SECONDS, Held, RunLease, holder
from penstock.base.process_identity import own_identity
from penstock.connectors.checkpoint import ReplacedError
from penstock.connectors.commit import Commit
from penstock.connectors.storage import storage
from penstock.connectors.url_checkpoint import checkpoint_at
from penstock.engines.placed.run_control import Asked
from penstock.planning.files import SavedPlan, parse_plan
from penstock.runs.config import PLACED
from penstock.runs.description import RunDescription, parse_description
from penstock.runs.folder_permissions import close_to_others

if TYPE_CHECKING:
    from collections.abc import Mapping

POLL_SECONDS = 0.05
REMOTE_POLL_SECONDS = 1.0
"""How often a place that is no folder is looked at."""
REQUESTS, ANSWERS, PLANS, SEGMENTS = "requests", "answers", "plans", ".segments.json"

_LOG = logging.getLogger(__name__)


class PlanSegments(Spec):
    """What of a plan ran as one: a run that goes on is cut as it was."""

    segments: list[list[str]]


class RunRequest(Spec):
    """`ask` is drain, resume, rescale or stop; `plan` the plan to go on with, `slots` how many to go on with."""

    id: Name
    ask: str
    plan: str | None = None
    slots: int | None = None


def is_run(place: str | Path) -> bool:
    """Whether a run was started there."""
    where = run_place(place)
    return "run.json" in storage(where).list("") if is_url(where) else (Path(where) / "run.json").exists()


class RunFolder:
    """What a run and those who ask something of it agree on. `place` is a folder, or a URI such as s3://bucket/run."""

    def __init__(self, place: str | Path) -> None:
        self.place = run_place(place)
        self.checkpoint = checkpoint_at(self.place)
        self._store = storage(self.place)
        self._lease: RunLease | None = None
        self._looked: Stopwatch | None = None

    @property
    def path(self) -> Path:
        """The folder, for what can be kept in nothing else."""
        if is_url(self.place):
            raise BadInputError(f"{self.place}: files as a source need a folder for the run, not a URI")
        return Path(self.place)

    @property
    def name(self) -> str:
        return self.place.rstrip("/").rpartition("/")[2]

    def create(self) -> None:
        if not is_url(self.place):
            close_to_others(private_folder(Path(self.place)), "run.json")
            for folder in (REQUESTS, ANSWERS, PLANS):
                private_folder(Path(self.place) / folder)
        self.checkpoint.create()

    def _document(self, path: str) -> Any:
        return parse_json(self._text(path), f"{self.place}/{path}")

    def _text(self, path: str) -> str:
        if not is_url(self.place):
            return read_text(Path(self.place) / path)
        try:
            return self._store.read(path).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"{self.place}/{path}: cannot be read: {error}") from error

    def _write(self, path: str, text: str) -> None:
        try:
            self._store.write(path, lambda file: file.write(text.encode()))
        except OSError as error:
            raise BadInputError(f"{self.place}/{path}: cannot be written: {error.strerror or error}") from error

    # What runs.

    @property
    def description(self) -> RunDescription:
        if not is_run(self.place):
            raise BadInputError(f"{self.place}: no run was started in this folder")
        described = parse_description(self._document("run.json"), f"{self.place}/run.json")
        if described.engine != PLACED:
            raise BadInputError(f"{self.place}/run.json: expected the description of a placed run")
        return described

    def describe(self, description: RunDescription) -> None:
        self._write("run.json", description.model_dump_json(indent=1) + "\n")

    def add_plan(self, plan: Mapping[str, Any], segments: list[list[str]]) -> str:
        """Kept under a new name, which a commit may come to name."""
        count = sum(not path.endswith(SEGMENTS) for path in self._store.list(PLANS) if path.endswith(".json"))
        name = f"plan-{count:03d}"
        self._write(f"{PLANS}/{name}.json", json.dumps(plan) + "\n")
        self._write(f"{PLANS}/{name}{SEGMENTS}", json.dumps({"segments": segments}) + "\n")
        return name

    def plan(self) -> tuple[SavedPlan, list[list[str]]]:
        """The plan that counts, by the last commit, and what ran as one."""
        last = self.checkpoint.last()
        if last is None:
            raise BadInputError(f"{self.place}: the run never started; start it in another folder")
        cut, file = f"{PLANS}/{last.plan}{SEGMENTS}", f"{PLANS}/{last.plan}.json"
        segments = check(PlanSegments, self._document(cut), f"{self.place}/{cut}").segments
        return parse_plan(self._document(file), f"{self.place}/{file}"), segments

    # Who conducts.

    @property
    def held_by(self) -> Held | None:
        """Whoever conducts the run now."""
        lease = self.checkpoint.lease
        return holder(lease, now(), this_host(), alive=lease is not None and lease.identity.is_there)

    def take(self, plan: str | None) -> Commit:
        """Conduct the run from here; `plan` names its first plan, of a run that has no commit yet."""
        held = self.held_by
        if held is not None:
            raise RunError(f"{self.place}: {held} conducts the run; penstock drain --stop ends it")
        last = self.checkpoint.last()
        if last is None:
            if plan is None:
                raise BadInputError(f"{self.place}: the run never started; start it in another folder")
            last = Commit(run=self.description.run, conductor=0, generation=0, epoch=0, plan=plan)
        if last.run != self.description.run:
            raise BadInputError(f"{self.place}: the checkpoint of another run, '{last.run}'")
        try:
            taken = self.checkpoint.take_over(last, last.plan)
        except ReplacedError as error:
            raise RunError(f"{self.place}: another process took the run over at the same moment") from error
        own = own_identity()
        self._lease = RunLease(
            host=this_host(),
            process=own.pid,
            started=own.started,
            ticks=own.ticks,
            boot=own.boot,
            number=taken.conductor,
            renewed=now(),
        )
        self.checkpoint.sign(self._lease)
        self._over = threading.Event()
        self._renewing = threading.Thread(
            target=self._keep_renewing, args=(self._lease, self._over), name="penstock-lease", daemon=True
        )
        self._renewing.start()
        return taken

    def _keep_renewing(self, lease: RunLease, over: threading.Event) -> None:
        """In a thread of its own: whoever conducts may wait for a broker longer than a lease lasts. A process that is
        stopped renews nothing. What the disk refuses is tried again."""
        while not over.wait(RENEW_SECONDS):
            try:
                current = self.checkpoint.lease
                if current is not None and current.number > lease.number:
                    return
                self.checkpoint.sign(lease.model_copy(update={"renewed": now()}))
            except (OSError, BadInputError) as error:
                _LOG.warning("lease not renewed: %s", error)

    def give_back(self) -> None:
        if self._lease is None:
            return
        self._over.set()
        self._renewing.join()
        current = self.checkpoint.lease
        if current is not None and current.number == self._lease.number:
            self.checkpoint.sign(self._lease.model_copy(update={"renewed": 0.0}))
        self._lease = None

    # What is asked.

    def requests(self) -> list[Asked]:
        """Oldest first; a name with a dot is still being written. What is no request does not end a run that lives.
        What becomes of each is written down for whoever left it."""
        if is_url(self.place):
            if self._looked is not None and self._looked.seconds() < REMOTE_POLL_SECONDS:
                return []
            self._looked = Stopwatch()
        requests = []
        for path in self._store.list(REQUESTS):
            name = path.rpartition("/")[2]
            if name.startswith(".") or not name.endswith(".json"):
                continue
            try:
                request = check(RunRequest, self._document(path), f"{self.place}/{path}")
                if f"{request.id}.json" != name:
                    raise BadInputError(f"{self.place}/{path}: the request of another file, '{request.id}'")
            except BadInputError as error:
                _LOG.warning("left alone: %s", error)
                self._store.move(path, f"{path.removesuffix('.json')}.refused")
            else:
                self._store.delete(path)
                answered: Future[float] = Future()
                answered.add_done_callback(partial(self._answer, request))
                plan = None if request.plan is None else Path(request.plan)
                requests.append(Asked(request.ask, answered, plan, request.slots))
        return requests

    def _answer(self, request: RunRequest, answered: Future[float]) -> None:
        error = answered.exception()
        document = {"seconds": answered.result()} if error is None else {"error": str(error)}
        self._write(f"{ANSWERS}/{request.id}.json", json.dumps(document))

    def ask(self, ask: str, patience: float, plan: Path | None = None, slots: int | None = None) -> dict[str, Any]:
        """Leave a request and wait for its answer."""
        where = None if plan is None else str(plan.absolute())
        # whoever conducts the run takes them in the order of their names
        request = RunRequest(id=f"{round(1000 * now()):014d}-{uuid.uuid4().hex}", ask=ask, plan=where, slots=slots)
        file, answer = f"{REQUESTS}/{request.id}.json", f"{ANSWERS}/{request.id}.json"
        self._write(file, request.model_dump_json())
        waited = Stopwatch()
        while answer not in self._store.list(ANSWERS):
            conducted = self.held_by is not None
            if not conducted or waited.seconds() > patience:
                self._store.delete(file)
                why = f"did not answer within {patience:g} s" if conducted else "ended meanwhile"
                raise RunError(f"{self.place}: the run {why}")
            pause(REMOTE_POLL_SECONDS if is_url(self.place) else POLL_SECONDS)
        document: dict[str, Any] = self._document(answer)
        self._store.delete(answer)
        if "error" in document:
            raise RunError(document["error"])
        return document


def is_url(place: str) -> bool:
    return "://" in place


def run_place(place: str | Path) -> str:
    """A URI as it is, a folder in full."""
    return str(place) if is_url(str(place)) else str(Path(place).absolute())


def this_host() -> str:
    """The machine and the namespace of its processes: numbers of processes mean something only within it."""
    try:
        return f"{socket.gethostname()}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - no file is meant
    except OSError:
        return socket.gethostname()
