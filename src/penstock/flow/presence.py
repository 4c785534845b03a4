"""Which bundles' processes are there, which are awaited since when, and how often each has failed lately."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.flow.events import Hello


@dataclass(slots=True)
class BundleProcess:
    """One start of a bundle."""

    start: int
    asked: float
    connection: int | None = None
    address: str = ""
    last_heard: float = 0.0


@dataclass(slots=True)
class Presence:
    window_seconds: float
    """Failures longer ago than this are forgotten."""
    processes: dict[str, BundleProcess] = field(default_factory=dict)
    _starts: dict[str, int] = field(default_factory=dict)
    _failures: dict[str, deque[float]] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        """Bundles that have a process, await one, or will be started."""
        return frozenset(self.processes) | frozenset(self._due)

    # Starting.

    def want(self, bundle: str, at: float) -> None:
        """A process is to be started at `at`, unless there is one or one is on its way."""
        if bundle not in self.processes:
            self._due.setdefault(bundle, at)

    def due(self, now: float) -> list[str]:
        return [bundle for bundle, at in self._due.items() if at <= now]

    def started(self, bundle: str, now: float) -> int:
        del self._due[bundle]
        number = self._starts[bundle] = self._starts.get(bundle, 0) + 1
        self.processes[bundle] = BundleProcess(number, now)
        return number

    def forget(self, bundle: str) -> None:
        self.processes.pop(bundle, None)
        self._due.pop(bundle, None)

    # Being there.

    def arrived(self, hello: Hello, now: float) -> None:
        process = self.processes[hello.bundle]
        process.connection, process.address, process.last_heard = hello.connection, hello.address, now

    def is_awaited(self, hello: Hello) -> bool:
        process = self.processes.get(hello.bundle)
        return process is not None and process.start == hello.start

    def bundle_at(self, connection: int) -> str | None:
        return next((name for name, process in self.processes.items() if process.connection == connection), None)

    def has_all(self, bundles: Collection[str]) -> bool:
        return all(name in self.processes and self.processes[name].connection is not None for name in bundles)

    def overdue(self, bundles: Collection[str], before: float) -> list[str]:
        """Those asked for before `before` that are not there."""
        return [
            name
            for name in sorted(bundles)
            if (process := self.processes.get(name)) is not None
            and process.connection is None
            and process.asked < before
        ]

    def silent(self, before: float) -> Iterator[tuple[str, BundleProcess]]:
        """Those that are there and were last heard before `before`."""
        for name, process in list(self.processes.items()):
            if process.connection is not None and process.last_heard < before:
                yield name, process

    # Failing.

    def failed(self, bundle: str, now: float) -> int:
        """Note a failure; how many there were lately."""
        times = self._failures.setdefault(bundle, deque())
        times.append(now)
        return self.failures(bundle, now)

    def failures(self, bundle: str, now: float) -> int:
        times = self._failures.get(bundle, deque())
        while times and times[0] < now - self.window_seconds:
            times.popleft()
        return len(times)
