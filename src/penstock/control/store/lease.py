"""One controller to a store: a lease with a number. Whoever takes it over gets a higher one, and what the old holder
still wants to write is refused by its number, whether or not it knows."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from penstock.control.store.schema import lease
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from sqlalchemy import Connection

LEASE_SECONDS = 15.0
"""A holder that has not written for so long is taken for dead; it renews at a third of that."""


class LeaseHeldError(PenstockError):
    """Another controller has the store."""


class LostLeaseError(PenstockError):
    """Another controller has taken the store over; this one must stop."""


@dataclass(frozen=True, slots=True)
class ControllerLease:
    number: int


def take(connection: Connection, now: float) -> ControllerLease:
    """The lease, if nobody has it: it was given back, has run out, or its holder was of this machine and is gone."""
    row = connection.execute(select(lease).with_for_update()).mappings().first()
    host, pid = socket.gethostname(), os.getpid()
    if row is None:
        connection.execute(lease.insert().values(id=1, number=1, host=host, pid=pid, until=now + LEASE_SECONDS))
        return ControllerLease(1)
    gone = row["host"] == host and not _alive(row["pid"])
    if row["until"] > now and not gone:
        raise LeaseHeldError(
            f"the store is held by the controller with process {row['pid']} on {row['host']}; end it with "
            f"`penstock down`, or wait {row['until'] - now:.0f} s if it is gone"
        )
    number = row["number"] + 1
    connection.execute(update(lease).values(number=number, host=host, pid=pid, until=now + LEASE_SECONDS))
    return ControllerLease(number)


def renew(connection: Connection, held: ControllerLease, now: float) -> None:
    """Part of every write: who no longer has the lease writes nothing."""
    renewed = connection.execute(update(lease).where(lease.c.number == held.number).values(until=now + LEASE_SECONDS))
    if renewed.rowcount != 1:
        raise LostLeaseError("another controller has taken the store over: this one stops")


def give_back(connection: Connection, held: ControllerLease) -> None:
    connection.execute(update(lease).where(lease.c.number == held.number).values(until=0.0))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
