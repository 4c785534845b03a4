"""The folder of a run, on a disk or in object storage: description, lease, state, requests, plans.

run.json             what runs, with which options: enough to resume it after its process died
lease.json           the process that conducts it
conductor            on a disk, of engines whose checkpoint does not fence a former conductor: locked by that process
state.json           how it stands, written about once a second
requests/, answers/  a request of another process is a file, and so is its answer
plans/NAME.json      plans a placed run was started with or changed to; the last commit names the one that counts
log                  messages of the process that conducts it

Engines keep their checkpoints and audits beside these files; in object storage, what they keep in files is below
`files/`, and the conductor works on a copy (`folder_copy`). The runs of this user are listed in one folder, in which
every run has an entry: its own folder, or the name of one elsewhere.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import shutil
import socket
import stat
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, now, pause, stamp
from penstock.base.errors import BadInputError, RunError, RunFailedError
from penstock.base.files import Name, Spec, check, parse_json, private_folder, read_text, write_text
from penstock.base.lease import RENEW_SECONDS, RunLease, holder
from penstock.base.process_identity import own_identity
from penstock.connectors.checkpoint import ReplacedError
from penstock.connectors.commit import Commit
from penstock.connectors.storage import storage
from penstock.connectors.url_checkpoint import checkpoint_at
from penstock.planning.files import parse_plan
from penstock.runs.description import RunDescription, parse_description
from penstock.runs.folder_copy import FILES, FolderCopy
from penstock.runs.states import FORMER_STATES, LIVING, RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.planning.files import SavedPlan


POLL_SECONDS = 0.05
REMOTE_POLL_SECONDS = 1.0
"""Seconds between two looks at a place that is not a folder."""
ANSWER_SECONDS = 180.0
LOCK_TRIES = 10
REQUESTS, ANSWERS, PLANS, SEGMENTS = "requests", "answers", "plans", ".segments.json"

_LOG = logging.getLogger(__name__)


class PlanSegments(Spec):
    """The operators of a plan that run as one: a run that is resumed is cut as it was."""

    segments: list[list[str]]


class FolderRequest(Spec):
    """A request of another process: `ask` is a word of `states.RunRequest`, the rest are its arguments."""

    id: Name
    ask: str
    plan: str | None = None
    slots: int | None = None
    keep_executors: bool = False


class RunBusyError(BadInputError):
    """Another process conducts the run."""


@dataclass(frozen=True, slots=True)
class ConductorRecord:
    """The process that conducts a run."""

    text: str

    def __str__(self) -> str:
        return self.text


class RunFolder:
    """`place` is a folder, or a URI such as s3://bucket/run.

    Called by the starter of a run (`create`, `take`, `describe`, `release`), by `Run` while it lives (`requests`,
    `answer`, `write_state`), and by other processes (`state`, `ask`).
    """

    def __init__(self, place: str | Path) -> None:
        self.place = run_place(place)
        self.checkpoint = checkpoint_at(self.place)
        self._store = storage(self.place)
        self._lease: RunLease | None = None
        self._lock: int | None = None
        self._looked: Stopwatch | None = None
        self._copy = None if self.is_local else FolderCopy(self._store, _copy_folder(self.place))

    @property
    def is_local(self) -> bool:
        return not is_url(self.place)

    @property
    def path(self) -> Path:
        """The folder. Raise BadInputError if it is a URI, for what can be kept in files only."""
        if not self.is_local:
            raise BadInputError(f"{self.place}: needs a folder for the run, not a URI")
        return Path(self.place)

    @property
    def working_folder(self) -> Path:
        """The folder in which its conductor keeps files: its own, or the copy of one in object storage."""
        return self.path if self._copy is None else self._copy.folder

    def save_files(self) -> None:
        """Make what the conductor wrote into `working_folder` durable. Called before a batch is committed. Raise
        RunFailedError if another process has taken the run over."""
        if self._copy is None:
            return
        if self._is_taken_over:
            raise RunFailedError(f"{self.place}: another process has taken the run over")
        try:
            self._copy.save()
        except OSError as error:
            raise RunFailedError(f"{self.place}: its files cannot be saved: {error}") from error

    def read_file(self, path: str) -> str:
        """Contents of a file of the conductor's, wherever it is; empty if there is none."""
        stored = path if self.is_local else f"{FILES}/{path}"
        return self._text(stored) if Path(stored).name in self.names(str(Path(stored).parent)) else ""

    def names(self, folder: str) -> list[str]:
        """Names of the files right below `folder` of the run's."""
        return [path.rpartition("/")[2] for path in self._store.list(folder)]

    @property
    def name(self) -> str:
        return self.place.rstrip("/").rpartition("/")[2]

    def create(self) -> None:
        """Make the folder, for its owner alone."""
        if self.is_local:
            close_to_others(private_folder(self.path), "run.json")
            for folder in (REQUESTS, ANSWERS):
                private_folder(self.path / folder)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def log_lines(self, count: int) -> list[str]:
        """The last lines of its log. In object storage that of the process that conducted it last."""
        text = self.read_file("log")
        if not text:
            raise BadInputError(f"{self.place}: the run has no log")
        return text.splitlines()[-count:]

    def _document(self, path: str) -> Any:
        return parse_json(self._text(path), f"{self.place}/{path}")

    def _text(self, path: str) -> str:
        if self.is_local:
            return read_text(self.path / path)
        try:
            return self._store.read(path).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"{self.place}/{path}: cannot be read: {error}") from error

    def _write(self, path: str, text: str) -> None:
        try:
            self._store.write(path, lambda file: file.write(text.encode()))
        except OSError as error:
            raise BadInputError(f"{self.place}/{path}: cannot be written: {error.strerror or error}") from error

    # Description.

    @property
    def has_run(self) -> bool:
        return is_run(self.place)

    @property
    def description(self) -> RunDescription:
        """The contents of run.json, whichever version wrote it."""
        if not self.has_run:
            raise BadInputError(f"{self.place}: no run was started here")
        return parse_description(self._document("run.json"), f"{self.place}/run.json")

    def describe(self, description: RunDescription) -> None:
        self._write("run.json", description.model_dump_json(indent=1) + "\n")

    def add_plan(self, plan: Mapping[str, Any], segments: list[list[str]]) -> str:
        """Keep a plan under a new name, which a commit may come to name."""
        count = sum(not path.endswith(SEGMENTS) for path in self._store.list(PLANS) if path.endswith(".json"))
        name = f"plan-{count:03d}"
        self._write(f"{PLANS}/{name}.json", json.dumps(plan) + "\n")
        self._write(f"{PLANS}/{name}{SEGMENTS}", json.dumps({"segments": segments}) + "\n")
        return name

    def plan(self) -> tuple[SavedPlan, list[list[str]]]:
        """The plan that the last commit names, and the operators that ran as one."""
        last = self.checkpoint.last()
        if last is None:
            raise BadInputError(f"{self.place}: the run never started; start it in another folder")
        cut, file = f"{PLANS}/{last.plan}{SEGMENTS}", f"{PLANS}/{last.plan}.json"
        segments = check(PlanSegments, self._document(cut), f"{self.place}/{cut}").segments
        return parse_plan(self._document(file), f"{self.place}/{file}"), segments

    # Lease.

    @property
    def held_by(self) -> ConductorRecord | None:
        """The process that conducts the run now."""
        lease = self.checkpoint.lease
        locked = self._is_locked()
        if locked is not None:
            by = "another process" if lease is None else f"process {lease.process} on {lease.host}"
            return ConductorRecord(by) if locked else None
        held = holder(lease, now(), this_host(), alive=lease is not None and lease.identity.is_there)
        return None if held is None else ConductorRecord(str(held))

    def _is_locked(self) -> bool | None:
        """Whether a process has locked the file `conductor`; None: there is no such file."""
        if not self.is_local:
            return None
        try:
            handle = os.open(self.path / "conductor", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    def take(self) -> None:
        """Conduct the run from this process. A lock keeps everyone else out until the process ends. Raise RunBusyError
        if another process conducts the run."""
        self._check_free()
        if self._copy is None:
            self._lock = self._locked()
            old = self.checkpoint.lease
            self._sign(1 if old is None else old.number + 1)
            return
        # Nothing in object storage can be locked: of two processes, the one with the greater claim conducts.
        last = self.checkpoint.last() or Commit(run=self.name, conductor=0, generation=0, epoch=0, plan="")
        self._sign(self._claimed(last).conductor)
        try:
            self._copy.fetch()
        except OSError as error:
            raise BadInputError(f"{self.place}: its files cannot be read: {error}") from error

    def take_over(self, plan: str | None) -> Commit:
        """Conduct the run from this process, for engines that commit to `checkpoint`: taking it over fences a former
        conductor. `plan` names the first plan of a run that has no commit yet."""
        self._check_free()
        self.checkpoint.create()
        last = self.checkpoint.last()
        if last is None:
            if plan is None:
                raise BadInputError(f"{self.place}: the run never started; start it in another folder")
            last = Commit(run=self.description.run, conductor=0, generation=0, epoch=0, plan=plan)
        if last.run != self.description.run:
            raise BadInputError(f"{self.place}: the checkpoint of another run, '{last.run}'")
        taken = self._claimed(last)
        self._sign(taken.conductor)
        return taken

    def _claimed(self, last: Commit) -> Commit:
        """Take the run over after its last commit. Fences whoever conducted it before."""
        try:
            return self.checkpoint.take_over(last, last.plan)
        except ReplacedError as error:
            raise RunError(f"{self.place}: another process took the run over at the same moment") from error

    @property
    def is_taken(self) -> bool:
        """Whether this process conducts the run."""
        return self._lease is not None

    def _check_free(self) -> None:
        held = self.held_by
        if held is not None:
            raise RunBusyError(f"{self.place}: {held} conducts the run; `penstock runs stop` ends it")

    def _sign(self, number: int) -> None:
        own = own_identity()
        self._lease = RunLease(
            host=this_host(),
            process=own.pid,
            started=own.started,
            ticks=own.ticks,
            boot=own.boot,
            number=number,
            renewed=now(),
        )
        self.checkpoint.sign(self._lease)
        if self._lock is None:  # a lock needs no renewal: the system releases it when its process dies
            self._over = threading.Event()
            self._renewing = threading.Thread(
                target=self._keep_renewing, args=(self._lease, self._over), name="penstock-lease", daemon=True
            )
            self._renewing.start()

    def _locked(self) -> int:
        handle = os.open(self.path / "conductor", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for _ in range(LOCK_TRIES):  # another process may be looking whether it is locked
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            pause(POLL_SECONDS)
        os.close(handle)
        raise RunBusyError(f"{self.place}: another process conducts the run; `penstock runs stop` ends it")

    def _keep_renewing(self, lease: RunLease, over: threading.Event) -> None:
        """Renew in a thread of its own: the conductor may wait for a broker longer than a lease lasts. A process that
        is suspended renews nothing. A write that the disk refuses is tried again."""
        while not over.wait(RENEW_SECONDS):
            try:
                current = self.checkpoint.lease
                if current is not None and current.number > lease.number:
                    return
                self.checkpoint.sign(lease.model_copy(update={"renewed": now()}))
            except (OSError, BadInputError) as error:
                _LOG.warning("lease not renewed: %s", error)

    @property
    def _is_taken_over(self) -> bool:
        current = self.checkpoint.lease if self._lease is not None else None
        return self._lease is not None and current is not None and current.number > self._lease.number

    def release(self) -> None:
        """Let others conduct the run."""
        if self._lease is not None and self._copy is not None:
            try:
                if self._copy.folder.is_dir() and not self._is_taken_over:
                    self._copy.save(logs=True)
            except OSError as error:  # committed batches are safe; the run must not stay held
                _LOG.warning("%s: its last files could not be saved: %s", self.place, error)
            self._copy.remove()
        if self._lease is not None:
            if self._lock is None:
                self._over.set()
                self._renewing.join()
            current = self.checkpoint.lease
            if current is not None and current.number == self._lease.number:
                self.checkpoint.sign(self._lease.model_copy(update={"renewed": 0.0}))
            self._lease = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # State.

    def write_state(self, state: RunState, **details: Any) -> None:
        """Write state.json, unless another process has taken the run over."""
        if self._is_taken_over:
            return
        self._write("state.json", json.dumps({"state": state.value, **details}))

    def state(self) -> tuple[RunState, dict[str, Any]]:
        """The state and its details as written last; `lost` if the run should live and no process conducts it."""
        try:
            document = self._document("state.json")
            word = document.pop("state")
            state = FORMER_STATES.get(word) or RunState(word)
        except (BadInputError, ValueError, AttributeError, KeyError, TypeError):
            state, document = self._state_by_lease(), {}
        if state in LIVING and self.held_by is None:
            state = RunState.LOST
        return state, document

    def _state_by_lease(self) -> RunState:
        """The state of a run without state.json, as placed runs of 0.1: held, given back, or left behind."""
        lease = self.checkpoint.lease
        given_back = lease is not None and lease.renewed == 0
        if given_back:
            return RunState.STOPPED
        try:
            return RunState.RUNNING if self.description.began else RunState.STARTING
        except BadInputError:
            return RunState.STARTING

    # Requests.

    def ask(self, ask: str, patience: float = ANSWER_SECONDS, **arguments: Any) -> dict[str, Any]:
        """Leave a request for the process that conducts the run, and return its answer."""
        # the conductor takes them in the order of their names
        request = FolderRequest(id=f"{round(1000 * now()):014d}-{uuid.uuid4().hex}", ask=ask, **arguments)
        file, answer = f"{REQUESTS}/{request.id}.json", f"{ANSWERS}/{request.id}.json"
        self._write(file, request.model_dump_json())
        waited = Stopwatch()
        while answer not in self._store.list(ANSWERS):
            conducted = self.held_by is not None
            if answer in self._store.list(ANSWERS):
                break  # its conductor answered before it ended
            if not conducted or waited.seconds() > patience:
                self._store.delete(file)
                why = f"did not answer within {patience:g} s" if conducted else "ended meanwhile"
                raise RunError(f"{self.place}: the run {why}")
            pause(POLL_SECONDS if self.is_local else REMOTE_POLL_SECONDS)
        document = self._document(answer)
        self._store.delete(answer)
        if not isinstance(document, dict):
            raise BadInputError(f"{self.place}/{answer}: expected an answer, found {type(document).__name__}")
        if "error" in document:
            raise (BadInputError if document.get("is_bad_input") else RunError)(str(document["error"]))
        return document

    def requests(self) -> Iterator[FolderRequest]:
        """Requests since the last look, oldest first. A file that is not a request is renamed, and ends nothing."""
        if not self.is_local:
            if self._looked is not None and self._looked.seconds() < REMOTE_POLL_SECONDS:
                return
            self._looked = Stopwatch()
        for path in self._store.list(REQUESTS):
            name = path.rpartition("/")[2]
            if name.startswith(".") or not name.endswith(".json"):
                continue  # it is still being written
            try:
                request = check(FolderRequest, self._document(path), f"{self.place}/{path}")
                if f"{request.id}.json" != name:
                    raise BadInputError(f"{self.place}/{path}: the request of another file, '{request.id}'")
            except BadInputError as error:
                _LOG.warning("left alone: %s", error)
                self._store.move(path, f"{path.removesuffix('.json')}.refused")
                continue
            self._store.delete(path)
            yield request

    def answer(self, request: FolderRequest, **answer: Any) -> None:
        self._write(f"{ANSWERS}/{request.id}.json", json.dumps(answer))

    def answer_error(self, request: FolderRequest, error: Exception) -> None:
        self.answer(request, error=str(error), is_bad_input=isinstance(error, BadInputError))


def is_run(place: str | Path) -> bool:
    """Return whether a run was started there. Raise BadInputError if that cannot be read."""
    where = run_place(place)
    try:
        return "run.json" in storage(where).list("") if is_url(where) else (Path(where) / "run.json").exists()
    except OSError as error:
        raise BadInputError(f"{where}: cannot be read: {str(error).splitlines()[0]}") from error


def is_url(place: str) -> bool:
    return "://" in place


def run_place(place: str | Path) -> str:
    """Return a URI as it is, a folder as an absolute path."""
    return str(place) if is_url(str(place)) else str(Path(place).absolute())


def this_host() -> str:
    """Return the machine and its namespace of processes: process numbers mean something only within it."""
    try:
        return f"{socket.gethostname()}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - not a path of a file
    except OSError:
        return socket.gethostname()


def close_to_others(folder: Path, own_file: str) -> None:
    """Let only its owner into a folder; `own_file` is in folders of ours.

    Warn, and change nothing, if the folder holds other things too, or belongs to root or to everyone.
    """
    try:
        status = folder.stat()
        if not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return
        entries = {entry.name for entry in folder.iterdir()}
        is_shared = status.st_uid != os.getuid() or bool(status.st_mode & stat.S_ISVTX)
        if is_shared or (entries and own_file not in entries):
            _LOG.warning("%s: other users may look into it; name a folder that is new, or chmod 700 it", folder)
        else:
            folder.chmod(0o700)
    except OSError as error:
        raise BadInputError(f"{folder}: cannot be used: {error.strerror or error}") from error


# The runs of this user, and finding one by its name.


ELSEWHERE = ".elsewhere"
"""The ending of an entry that holds the path of a folder elsewhere."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of this user as its folder describes it, whichever process conducts it."""

    name: str
    folder: Path
    pipeline: str
    engine: str
    state: RunState
    details: dict[str, Any]

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "folder": str(self.folder),
            "pipeline": self.pipeline,
            "engine": self.engine,
            "state": str(self.state),
            **self.details,
        }


def runs_folder() -> Path:
    """That of PENSTOCK_RUNS, or one in the user's cache."""
    if configured := os.environ.get("PENSTOCK_RUNS"):
        return Path(configured).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return ((Path(cache) if cache else Path.home() / ".cache") / "penstock" / "runs").absolute()


def _copy_folder(place: str) -> Path:
    """A folder for this conductor alone: a suspended one may still write to its own."""
    return runs_folder() / ".copies" / f"{sha256(place.encode()).hexdigest()[:16]}-{os.getpid()}-{secrets.token_hex(4)}"


def new_run_folder(pipeline: str) -> Path:
    return private_folder(runs_folder() / f"{_plain(pipeline)}-{stamp()}-{secrets.token_hex(2)}")


def is_unnamed(folder: Path) -> bool:
    """Whether a run's folder is among those of runs for which the user named none."""
    return folder.resolve().parent == runs_folder().resolve()


def note_elsewhere(folder: Path) -> None:
    """A run in a folder that the user named is found among the others too; one that is among them has its entry."""
    if is_unnamed(folder):
        return
    path = str(folder.resolve())
    write_text(
        private_folder(runs_folder()) / f"{_plain(folder.name)}-{sha256(path.encode()).hexdigest()[:8]}{ELSEWHERE}",
        path,
    )


def forget_run(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def list_runs() -> list[ListedRun]:
    """Those whose folder is there and can be read, the newest last; entries of folders that are gone, or listed without
    one, are removed."""
    runs = []
    for entry in sorted(runs_folder().iterdir()) if runs_folder().is_dir() else ():
        folder = entry
        if entry.suffix == ELSEWHERE:
            elsewhere = _elsewhere(entry)
            if elsewhere is None or is_unnamed(elsewhere):
                entry.unlink(missing_ok=True)
                continue
            folder = elsewhere
        run = _listed(folder)
        if run is not None:
            runs.append(run)
    return sorted(runs, key=lambda run: str(run.details.get("started", "")))


def _elsewhere(entry: Path) -> Path | None:
    """The folder that an entry names; None if there is no run in it, or if the entry cannot be read."""
    try:
        folder = Path(read_text(entry).strip())
        return folder if (folder / "run.json").exists() else None
    except (BadInputError, OSError, ValueError) as error:
        _LOG.warning("%s: names no folder: %s", entry, error)
        return None


def find_run(name: str | Path) -> Path:
    """The folder of a run, by its path or the name `runs` shows."""
    if (Path(name) / "run.json").exists():
        return Path(name)
    known = {run.name: run.folder for run in list_runs()}
    if str(name) in known:
        return known[str(name)]
    shown = f"; there are: {', '.join(known)}" if known else ""
    raise BadInputError(f"no run '{name}': expected its folder, or a name that `penstock runs list` shows{shown}")


def run_folder(run: str | Path) -> RunFolder:
    """The folder of a run by its path, its URI, or the name that `runs list` shows."""
    if is_url(str(run)):
        return RunFolder(str(run))
    return RunFolder(run if Path(run).is_dir() else find_run(run))


def _listed(place: Path) -> ListedRun | None:
    """None: no run is there, or its description cannot be read."""
    folder = RunFolder(place)
    try:
        known, (state, details) = folder.description, folder.state()
    except BadInputError:
        return None
    slots = {} if known.config.slots is None else {"slots": known.config.slots}
    started = known.started or stamp(known.began or (place / "run.json").stat().st_mtime)
    return ListedRun(known.run, place, known.pipeline, known.engine, state, {"started": started, **slots, **details})


def _plain(name: str) -> str:
    """A part of a file's name, of at most 80 characters and 160 bytes: some scripts have four bytes for a letter."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)[:80]
    return plain.encode()[:160].decode("utf-8", errors="ignore")
