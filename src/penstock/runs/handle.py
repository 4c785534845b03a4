"""A run that lives, as an object: what `penstock.start(...)` returns."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.base.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from penstock.cluster.topology import Slot
    from penstock.inputs.finders import ModelsLike, RunnableLike
    from penstock.report.figures import Figures
    from penstock.report.result import RunResult

LIVING = frozenset({"starting", "running", "draining"})
"""What a run is that can be drained."""


class RunHandle:
    """As a `StreamingQuery` is for a query: it goes on by itself, and can be asked, changed and ended."""

    def __init__(
        self,
        folder: Path,
        run: Any,
        figures: Callable[[], Figures | None],
        result: Callable[[Any], RunResult],
        again: Callable[..., RunHandle],
    ) -> None:
        self.folder = folder
        self._run = run
        self._figures = figures
        self._make_result = result
        self._again = again
        self._result: RunResult | None = None

    @property
    def status(self) -> str:
        """starting, running, draining, ended or failed."""
        return str(self._run.state)

    @property
    def slots(self) -> int:
        return int(self._run.slots)

    @property
    def progress(self) -> Figures | None:
        """Rates, latency, backlog and use of late; None before the second batch."""
        return self._figures()

    @property
    def idle_seconds(self) -> float:
        """How long after its last batch nothing had come; 0 while there is something to do."""
        return float(self._run.idle_seconds)

    @property
    def last_batch(self) -> float | None:
        """When the last batch that held tuples and is finished was begun, in seconds since the epoch."""
        last: float | None = self._run.last_batch
        return last

    @property
    def nodes(self) -> Mapping[str, int] | None:
        """How many slots are on each node now, where that is known."""
        nodes: Mapping[str, int] | None = self._run.nodes
        return nodes

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        """By a number of one's own: a field, and a threshold. From the next batch on `shares` says which part of a
        batch is above it, as a sink gets it."""
        self._run.watch(fields)

    @property
    def shares(self) -> Mapping[int, float]:
        shares: Mapping[int, float] = self._run.shares
        return shares

    def rescale(self, slots: int, places: Collection[Slot] | None = None) -> float:
        """Adds executors or lets some go while the query goes on; returns the seconds it took. `places`: on exactly
        these, for a run that was started on named slots."""
        return float(self._run.rescale(slots, places))

    def drain(self) -> RunResult:
        """Nothing more is taken in, what is under way is finished; returns what the run did."""
        self._run.drain()
        return self._awaited()

    def stop(self) -> RunResult:
        """Ends at once; a batch under way is run again by whoever resumes the run."""
        self._run.stop()
        return self._awaited()

    def resume(
        self,
        plan: RunnableLike | None = None,
        *,
        slots: int | None = None,
        seconds: float | None = None,
        models: ModelsLike = None,
    ) -> RunHandle:
        """Goes on from what was committed, with other threads and slots where a `plan` (or `slots`) says so. A run that
        still goes on is drained first. Returns the handle of the run that goes on."""
        if self.status in LIVING:
            self.drain()
        else:
            with suppress(Exception):  # why it failed is known; it lets go of what it holds
                self.await_end()
        return self._again(plan, slots, seconds, models)

    def await_end(self, timeout: float | None = None) -> RunResult | None:
        """What the run did, or None if it still runs after `timeout` seconds."""
        if self._result is not None:
            return self._result
        report = self._run.await_end(timeout)
        if report is None:
            return None
        self._result = self._make_result(report)
        return self._result

    def _awaited(self) -> RunResult:
        result = self.await_end()
        if result is None:
            raise PenstockError(f"run in {self.folder} did not end")
        return result
