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
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import quote

from pydantic import Field, model_validator

from penstock.base.errors import BadInputError
from penstock.base.files import Amount, Count, Name, Positive, Spec, read_value, write_text
from penstock.base.process_identity import ProcessIdentity, identity_of
from penstock.cluster.contract import ExecutorSize
from penstock.cluster.topology import Slot
from penstock.control.core.messages import OrderKind
from penstock.control.core.records import EngineName
from penstock.runs.config import MIN_EXECUTOR_MB, RunConfig
from penstock.runs.description import ConfigField

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeVar

    from penstock.control.core.records import PipelinePlan

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
WHOLE_PIPELINE = "pipeline"
"""Name of the one operator that a fused pipeline is to its slots."""
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
    """The plan file that was submitted, for the models in it. The work of the executors is the plan of the order."""
    rate: float | None = None
    """Rate of the target; read by version 0.1."""
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


class PlannedSlotEntry(Spec):
    """A slot of a plan: see `control.core.records.PlannedSlot`."""

    node: Name
    slot: Annotated[int, Field(ge=0, strict=True)]
    threads: dict[Name, Count] = Field(default_factory=dict)
    memory_mb: Positive


class PlanEntry(Spec):
    """The plan of an order: see `control.core.records.PipelinePlan`."""

    engine: EngineName
    allocator: Name
    placer: Name
    segmenter: Name
    rate: Amount
    predicted_rate: Amount | None = None
    slots: tuple[PlannedSlotEntry, ...]
    demands: dict[str, dict[str, Amount]] = Field(default_factory=dict)
    executor_cores: Positive = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.engine not in {EngineName.FUSED, EngineName.PLACED}:
            raise ValueError(f"engine: expected fused or placed, found {self.engine}")
        places = [(entry.node, entry.slot) for entry in self.slots]
        if len(set(places)) < len(places):
            raise ValueError("slots: a slot is listed twice")
        for entry in self.slots:
            if bool(entry.threads) is not (self.engine is EngineName.PLACED):
                has = "no threads" if self.engine is EngineName.PLACED else "threads of single operators"
                raise ValueError(f"slots: slot {entry.node}/{entry.slot} of a {self.engine} plan has {has}")
        return self

    @classmethod
    def of(cls, plan: PipelinePlan) -> Self:
        return cls(
            engine=plan.engine,
            allocator=plan.allocator,
            placer=plan.placer,
            segmenter=plan.segmenter,
            rate=float(plan.rate),
            predicted_rate=None if plan.predicted_rate is None else float(plan.predicted_rate),
            slots=tuple(
                PlannedSlotEntry(node=it.node, slot=it.slot, threads=dict(it.threads), memory_mb=float(it.memory_mb))
                for it in plan.slots
            ),
            demands={name: {key: float(it) for key, it in row.items()} for name, row in plan.demands.items()},
            executor_cores=float(plan.executor_cores),
        )


class DriverOrder(Spec):
    kind: OrderKind
    serial: int
    incarnation: int
    fence: int
    slots: tuple[tuple[str, int], ...] = ()
    """Node and number of each."""
    forced: bool = False
    watched: tuple[WatchedField, ...] = ()
    plan: PlanEntry | None = None
    """The work of the executors on `slots`; None: a fused pipeline, or an order of a version that kept no plans."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.plan is not None and {(it.node, it.slot) for it in self.plan.slots} != set(self.slots):
            raise ValueError("plan: its slots are not those of the order")
        return self

    @property
    def places(self) -> tuple[Slot, ...]:
        return tuple(Slot(node, number) for node, number in self.slots)

    @property
    def threads(self) -> dict[Slot, dict[str, int]]:
        """Threads by slot. In a fused pipeline every slot is one thread of the whole pipeline."""
        if self.plan is None or self.plan.engine is EngineName.FUSED:
            return {place: {WHOLE_PIPELINE: 1} for place in self.places}
        return {Slot(it.node, it.slot): dict(it.threads) for it in self.plan.slots}

    @property
    def executors(self) -> dict[Slot, ExecutorSize]:
        """The executors to run, by slot. Without a plan they have the size of the run's own options.

        Spark starts no executor with less than `MIN_EXECUTOR_MB`, and counts whole cores.
        """
        if self.plan is None:
            return dict.fromkeys(self.places, ExecutorSize())
        cores = ceil(self.plan.executor_cores)
        return {
            Slot(it.node, it.slot): ExecutorSize(max(MIN_EXECUTOR_MB, int(it.memory_mb)), cores)
            for it in self.plan.slots
        }

    def runs_as(self, other: DriverOrder) -> bool:
        """Return whether executors do the same by both orders, so that nothing has to change."""
        cuts = [None if order.plan is None else order.plan.segmenter for order in (self, other)]
        return (self.threads, self.executors, cuts[0]) == (other.threads, other.executors, cuts[1])


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
    """Reason of a failure, or why the newest order is not carried out."""
    moved_threads: int = 0
    """Threads that the last order moved from one slot to another."""
    pause_seconds: float | None = None
    """Seconds without output while the last order was carried out; None if that is not known."""


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
