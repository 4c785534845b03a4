"""What the controller and a driver tell each other: files in the pipeline's folder, each written whole or not at all.

Neither needs the other to be there. A driver goes on with its last order while the controller is gone, and a controller
that starts anew reads what happened meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import Field, model_validator

from penstock.base.errors import BadInputError
from penstock.base.files import Amount, Spec, read_value, write_text
from penstock.base.process_identity import ProcessIdentity, identity_of
from penstock.cluster.topology import Slot
from penstock.control.core.messages import OrderKind
from penstock.runs.config import RunConfig
from penstock.runs.description import ConfigField

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeVar

    S = TypeVar("S", bound=Spec)

JOB, ORDER, REPORT, DRIVER, LOCK, LOG, RUN = (
    "job.json",
    "order.json",
    "report.json",
    "driver.json",
    "lock",
    "driver.log",
    "run",
)
OWNER = "owner.json"
"""Beside the folders of pipelines: the store and the lease of the controller that they obey."""
MAX_NAME_BYTES = 255
"""Of a file or folder, on every file system there is."""


class DriverState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINED = "drained"
    """It took in nothing more, finished what was under way, and has ended."""
    ENDED = "ended"
    FAILED = "failed"


class DriverJob(Spec):
    """What to run; written by the controller before a driver is started."""

    name: str
    pipeline: Any
    plan: dict[str, Any] | None = None
    """What was submitted, where it was a plan: its threads are kept as long as the share has as many slots."""
    rate: float | None = None
    """Of the target."""
    config: ConfigField = RunConfig()
    incarnation: int
    fence: int = 0
    """Number of the lease of the controller that wrote this."""

    @model_validator(mode="before")
    @classmethod
    def _read_options_of_0_1(cls, data: Any) -> Any:
        """Version 0.1 wrote the options beside everything else."""
        if not isinstance(data, dict) or "config" in data:
            return data
        former = {"engine": "engine", "load": "rate", "interval_ms": "interval_ms", "settings": "settings"}
        config = {present: data[key] for key, present in former.items() if key in data}
        return {**{key: value for key, value in data.items() if key not in former}, "config": config}


class WatchedField(Spec):
    """A condition of a trigger that is evaluated where the data is: the part of a batch with `field` above that."""

    trigger: int
    field: str
    above: float


class DriverOrder(Spec):
    kind: OrderKind
    serial: int
    incarnation: int
    fence: int
    slots: tuple[tuple[str, int], ...] = ()
    """Node and number of each."""
    forced: bool = False
    watched: tuple[WatchedField, ...] = ()

    @property
    def places(self) -> tuple[Slot, ...]:
        return tuple(Slot(node, number) for node, number in self.slots)


class PartReport(Spec):
    """Readings of an operator, of its threads on one slot, of a slot, or of a topic's partition."""

    operator: str | None = None
    slot: tuple[str, int] | None = None
    partition: str | None = None
    values: dict[str, float]


class DriverReport(Spec):
    incarnation: int
    state: DriverState
    at: Amount
    serial: int = -1
    """The last order that was carried out."""
    nodes: dict[str, int] = Field(default_factory=dict)
    """Executors on each node, as Spark says."""
    first_tuple: int = -1
    """The last order on whose share a tuple was processed."""
    readings: dict[str, float] = Field(default_factory=dict)
    parts: tuple[PartReport, ...] = ()
    shares: dict[int, float] = Field(default_factory=dict)
    """By trigger: the part of the last batch that was above."""
    why: str = ""


class DriverProcess(ProcessIdentity):
    incarnation: int


class FolderOwner(Spec):
    store: str = ""
    """Id of the store whose pipelines these are."""
    fence: int = 0
    """The highest number of a lease that has been here."""


def folder_of(base: Path, pipeline: str) -> Path:
    """Names of pipelines may hold what names of folders may not, and be longer.

    `=` never stands in a name that was only quoted, so no two pipelines get one folder.
    """
    name = quote(pipeline, safe=" ")
    if name in {".", ".."}:
        name = name.replace(".", "%2E")
    if len(name) > MAX_NAME_BYTES:
        digest = sha256(pipeline.encode()).hexdigest()
        name = f"{name[: MAX_NAME_BYTES - len(digest) - 1]}={digest}"
    return base / name


def put(folder: Path, name: str, value: Spec) -> None:
    write_text(folder / name, value.model_dump_json() + "\n")


def get(shape: type[S], folder: Path, name: str) -> S | None:
    """None if it is not there, or is not what it should be: the process that wrote it will write it again.

    Raises `BadInputError` if there is no telling, as when this process has no file descriptor left.
    """
    try:
        return read_value(shape, folder / name)
    except BadInputError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in {errno.ENOENT, errno.ENOTDIR}:
            raise
        return None


def is_locked(folder: Path) -> bool:
    """Whether a driver runs here: it holds the lock as long as it lives, whatever its number or the clock says."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def driver_in(folder: Path) -> DriverProcess | None:
    """The driver of a folder as it has said itself; it may have ended.

    Penstock 0.1 wrote no ticks. A driver that holds the lock has written its number after it took the lock, so that is
    the number of the process that lives.
    """
    own = get(DriverProcess, folder, DRIVER)
    if own is None or own.ticks is not None or own.is_there or not is_locked(folder):
        return own
    try:
        return DriverProcess(incarnation=own.incarnation, **dict(identity_of(own.pid)))
    except ProcessLookupError:
        return own


def check_owner(base: Path, store: str) -> None:
    """Raise `BadInputError` if the drivers below `base` belong to the pipelines of another store."""
    known = get(FolderOwner, base, OWNER)
    if store and known is not None and known.store and known.store != store:
        raise BadInputError(
            f"{base}: its drivers and checkpoints are of another store; start this controller with that store, or "
            "in a state folder of its own (--state)"
        )


def keep_fence(base: Path, store: str, fence: int) -> None:
    """Take the drivers below `base` for the lease `fence`, or raise `BadInputError` if a later lease has them."""
    known = get(FolderOwner, base, OWNER) or FolderOwner()
    if known.fence > fence:
        raise BadInputError(
            f"{base}: a controller with a later lease ({known.fence}) has taken its drivers over from this one "
            f"({fence}); if there is none, remove {OWNER}"
        )
    owner = FolderOwner(store=store or known.store, fence=fence)
    if owner != known:
        put(base, OWNER, owner)
