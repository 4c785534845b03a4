"""The one module that reads the clock; everything else is given the time, or a stopwatch."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime


def now() -> float:
    """Seconds since the epoch: what tuples are stamped with, comparable between processes of one machine."""
    return time.time()


def pause(seconds: float) -> None:
    time.sleep(seconds)


def cpu_seconds() -> float:
    """CPU this process has used, all threads."""
    return time.process_time()


def thread_cpu_seconds() -> float:
    """CPU this thread has used."""
    return time.thread_time()


def today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def time_of_day(at: float) -> str:
    """Return the local time of day of a moment in seconds since the epoch."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def date_and_time(at: float) -> str:
    """Return the local date and time, with the time zone, of a moment in seconds since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def stamp(at: float | None = None) -> str:
    """Date and time to the second, fit for a file's name; now, or of a moment in seconds since the epoch."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(at))


def timestamp_of(at: float) -> str:
    """Return a moment in seconds since the epoch as `2026-01-01T12:00:00.000+00:00`."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def seconds_of(timestamp: str) -> float:
    """Seconds since the epoch of a time as `2026-01-01T12:00:00.000Z`."""
    return datetime.fromisoformat(timestamp).timestamp()


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Seconds since it was made."""

    _started: float = field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        return time.perf_counter() - self._started
