"""The lease of a run: the host and process that conduct it, and a number that only rises.

The lease prevents two conductors by accident. The checkpoint makes two conductors harmless: the commit of an epoch can
be created once, and a process that takes a run over creates the next one first.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.files import Count, Spec
from penstock.base.process_identity import ProcessIdentity

LEASE_SECONDS = 10.0
"""A lease that was not renewed for this long is free."""
RENEW_SECONDS = 2.0


class RunLease(Spec):
    host: str
    """The machine, and the namespace of processes on it: numbers of processes mean something only there."""
    process: Count
    started: float = 0.0
    ticks: int | None = None
    boot: str = ""
    """The start of the process, as its identity has it: a number alone may have been given to another."""
    number: int
    renewed: float
    """Seconds since the epoch; 0: it was given back."""

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(pid=self.process, started=self.started, ticks=self.ticks, boot=self.boot)


@dataclass(frozen=True, slots=True)
class Held:
    """The lease cannot be taken: another process has it."""

    by: RunLease

    def __str__(self) -> str:
        return f"process {self.by.process} on {self.by.host}"


def holder(lease: RunLease | None, now: float, host: str, *, alive: bool) -> Held | None:
    """Return the holder of the run, None if it is free. `alive`: a process with that number and start is on this host.

    On this host a dead process holds nothing, and a living one holds it until its lease has run out: it may have been
    stopped. For another host only the lease's age is known.
    """
    if lease is None or lease.renewed == 0 or now - lease.renewed > LEASE_SECONDS:
        return None
    if lease.host == host and not alive:
        return None
    return Held(lease)
