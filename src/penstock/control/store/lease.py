"""One controller to a store: a lease with a number. A controller that takes it over gets a higher number, and writes of
the earlier holder are rejected by their number, whether or not it knows.

No clock is compared between machines. A holder adds one to the lease's `beat` with every write, and at least every
third of `LEASE_SECONDS`. A controller that cannot see the holder's process (another machine, another container) watches
the beat for `LEASE_SECONDS` of its own steady clock before it takes over. A step of a machine's clock therefore neither
loses nor steals a lease.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import update

from penstock.base.errors import BadInputError, PenstockError
from penstock.base.files import read_text
from penstock.control.errors import DamagedStoreError, StoreFault
from penstock.control.store.rows import key_of, parse, select_raw
from penstock.control.store.schema import lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

LEASE_SECONDS = 15.0
"""A holder out of sight that has not written for this long is taken for dead; it renews at a third of that."""

POLL_SECONDS = 0.25
FOLDER_ID = "folder-id"
"""File with a random id of a state folder: two machines share a folder if they read the same id in it."""

_STATE, _START, _FIRST_AFTER_NAME = 3, 22, 3
"""Numbers of fields of /proc/PID/stat, from 1."""


class LeaseHeldError(PenstockError):
    """Another controller has the store."""


class LostLeaseError(PenstockError):
    """Another controller has taken the store over; this one must stop."""


@dataclass(frozen=True, slots=True)
class ControllerLease:
    number: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last sign of life of a holder out of sight."""

    number: int
    beat: int


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The process that holds a lease, and the folder in which it keeps everything that is not in the store."""

    host: str
    boot: str
    """Id of this boot of the machine's kernel; empty if the system has no /proc."""
    namespace: str
    """Id of the namespace that process numbers count in: containers have their own."""
    pid: int
    ticks: int
    """Start of the process in clock ticks since boot: a later process with the same number has another."""
    folder: str = ""
    folder_id: str = ""

    @classmethod
    def own(cls, folder: Path | None = None) -> LeaseHolder:
        pid = os.getpid()
        where = ("", "") if folder is None else (str(folder.absolute()), _folder_id(folder))
        return cls(socket.gethostname(), _boot_id(), _namespace(), pid, _ticks(pid) or 0, *where)

    def sees(self, other: LeaseHolder) -> bool:
        """Whether `other` has, or had, a process number that means the same process to us."""
        return bool(self.boot) and (self.boot, self.namespace) == (other.boot, other.namespace)

    @property
    def lives(self) -> bool:
        return _ticks(self.pid) == self.ticks


def take(
    connection: Connection, own: LeaseHolder, now: float, *, take_over: bool, seen: Heartbeat | None, waited: float
) -> ControllerLease | Heartbeat:
    """Return the lease if it is free or its holder is dead, or a heartbeat to watch if that cannot be known yet.

    `seen` is the heartbeat that was returned first, `waited` the seconds since then. Raises if the holder lives, or if
    the store belongs to another state folder: its drivers may still run there.
    """
    row = _current(connection)
    if row is None:
        connection.execute(lease.insert().values(id=1, number=1, beat=0, held=True, renewed_at=now, **asdict(own)))
        return ControllerLease(1)
    holder = holder_of(row)
    if not take_over:
        if holder.folder_id and own.folder_id and holder.folder_id != own.folder_id:
            raise LeaseHeldError(
                f"the store belongs to the controller of folder {holder.folder} on host '{holder.host}': its drivers "
                "may run there; start it there, or end them and give --take-over"
            )
        if row["held"]:
            known = Heartbeat(row["number"], row["beat"])
            if own.sees(holder):
                if holder.lives:
                    raise _held(holder, "end it with `penstock controller down`")
            elif seen is None:
                return known
            elif known != seen:
                raise _held(holder, "end it there")
            elif waited < LEASE_SECONDS:
                return seen
    number = row["number"] + 1
    connection.execute(
        update(lease).values(number=number, beat=row["beat"] + 1, held=True, renewed_at=now, **asdict(own))
    )
    return ControllerLease(number)


def renew(connection: Connection, held: ControllerLease, now: float) -> None:
    """Part of every write: a controller that no longer has the lease writes nothing. `now` is kept for people."""
    renewed = connection.execute(
        update(lease).where(lease.c.number == held.number).values(beat=lease.c.beat + 1, renewed_at=now)
    )
    if renewed.rowcount != 1:
        raise LostLeaseError("another controller has taken the store over: this one stops")


def give_back(connection: Connection, held: ControllerLease) -> None:
    connection.execute(update(lease).where(lease.c.number == held.number).values(held=False))


def holder_of(row: Mapping[str, Any]) -> LeaseHolder:
    return LeaseHolder(**{name: row[name] for name in LeaseHolder.__dataclass_fields__})


def _current(connection: Connection) -> dict[str, Any] | None:
    is_sqlite = connection.dialect.name == "sqlite"
    rows = list(select_raw(connection, lease, "" if is_sqlite else "FOR UPDATE"))
    if not rows:
        return None
    row, reason = parse(lease, rows[0], is_sqlite=is_sqlite)
    if reason:
        raise DamagedStoreError(str(StoreFault("lease", key_of(lease, row), reason)))
    return row


def _held(holder: LeaseHolder, remedy: str) -> LeaseHeldError:
    return LeaseHeldError(
        f"the store is held by the controller with process {holder.pid} on {holder.host}; {remedy}, or give "
        "--take-over, after which it can write no more"
    )


def _folder_id(folder: Path) -> str:
    path = folder / FOLDER_ID
    temporary = folder / f".{FOLDER_ID}-{secrets.token_hex(8)}"
    try:
        if not path.exists():
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_hex(16), encoding="ascii")
            try:
                path.hardlink_to(temporary)  # the first of two that start at once makes it
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        return read_text(path).strip()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _ticks(pid: int) -> int | None:
    """None: there is no such process, or it is dead and waits to be collected."""
    try:
        text = (Path("/proc") / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name of the program stands in parentheses, and may hold blanks and parentheses itself
    fields = text.rpartition(b")")[2].split()
    return None if fields[_STATE - _FIRST_AFTER_NAME] in {b"Z", b"X"} else int(fields[_START - _FIRST_AFTER_NAME])
