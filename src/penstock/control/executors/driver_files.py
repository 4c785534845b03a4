"""What the controller and a driver tell each other: files in the pipeline's folder, each written whole or not at all.

Neither needs the other to be there. A driver goes on with its last order while the controller is gone, and a controller
that starts anew reads what happened meanwhile.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import Field

from penstock.cluster.topology import Slot
from penstock.control.core.outcome import OrderKind
from penstock.control.core.records import Engine
from penstock.errors import BadInputError
from penstock.files import Amount, Count, Spec, read_value, write_text

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
    engine: Engine = Engine.FUSED
    plan: dict[str, Any] | None = None
    """What was submitted, where it was a plan: its threads are kept as long as the share has as many slots."""
    rate: float | None = None
    """Of the target."""
    load: str | None = None
    interval_ms: Count = 100
    """Between the beginnings of two batches of a fused run, at least."""
    incarnation: int
    settings: dict[str, str] = Field(default_factory=dict)


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


class DriverProcess(Spec):
    pid: Count
    started: Amount
    incarnation: int


def folder_of(base: Path, pipeline: str) -> Path:
    """Names of pipelines may hold what names of folders may not."""
    return base / quote(pipeline, safe=" ")


def put(folder: Path, name: str, value: Spec) -> None:
    write_text(folder / name, value.model_dump_json() + "\n")


def get(shape: type[S], folder: Path, name: str) -> S | None:
    """None where it is not there, or is not what it should be: whoever wrote it will write it again."""
    try:
        return read_value(shape, folder / name)
    except BadInputError:
        return None
