"""Somebody's own Spark application, from inside its driver: what its queries report, and its executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.base.errors import ClusterError
from penstock.cluster.contract import ExecutorSize
from penstock.spark.internals.executors import FusedExecutors, PinnedExecutors, executor_settings
from penstock.spark.internals.java import parsed_megabytes, parsed_seconds
from penstock.spark.internals.listeners import progress_listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from penstock.cluster.topology import Slot

SILENT = ("schedulerBacklogTimeout", "sustainedSchedulerBacklogTimeout", "executorIdleTimeout")
LONG_SECONDS = 86_400
"""Dynamic allocation that waits a day before it does anything leaves executors to us."""


def attachable_settings(executors: int, *, by_slot: bool = False) -> dict[str, str]:
    """For the session of an application whose executors are to come and go: it starts with so many, of one core each,
    and Spark itself never adds or ends one. `by_slot`: on Workers that offer slots by name."""
    return executor_settings(executors, by_slot=by_slot)


def has_named_slots(session: SparkSession) -> bool:
    """Whether its executors ask for a slot each, as the Workers of our clusters offer them."""
    return session.sparkContext.getConf().get("spark.executor.resource.slot.amount", "0") == "1"


class SparkApplication:
    def __init__(self, session: SparkSession, *, pinned: bool = False) -> None:
        """`pinned`: somebody says on which slots its executors are."""
        self._session = session
        self._pinned = pinned
        self._executors = PinnedExecutors(session, _memory_mb(session)) if pinned else FusedExecutors(session)
        self._listener: Any = None
        settings = session.sparkContext.getConf()
        self._local = str(session.sparkContext.master).startswith("local")
        self.cores = 1 if self._local else int(settings.get("spark.executor.cores", "1") or 1)
        """Of one executor."""
        self.why_fixed = self._why_fixed()
        """Why executors cannot be added and let go here; None where they can."""

    def _why_fixed(self) -> str | None:
        settings = self._session.sparkContext.getConf()
        if self._local:
            return "a local session has no executors of its own"
        if settings.get("spark.dynamicAllocation.enabled", "false") != "true":
            return "spark.dynamicAllocation.enabled is false; see penstock.attachable_settings"
        for name in SILENT:
            given = settings.get(f"spark.dynamicAllocation.{name}", "1s")
            if given is not None and parsed_seconds(self._session, given) < LONG_SECONDS:
                return f"spark.dynamicAllocation.{name} is {given}: Spark itself adds and ends executors"
        return None

    def listen(self, on_progress: Callable[[dict[str, Any]], None]) -> None:
        self._listener = progress_listener(self._session, on_progress)
        self._session.streams.addListener(self._listener)

    def close(self) -> None:
        if self._listener is not None:
            self._session.streams.removeListener(self._listener)
            self._listener = None

    @property
    def executors(self) -> int:
        return 1 if self._local else len(self._executors.ids())

    @property
    def slots(self) -> int:
        return int(self._session.sparkContext.defaultParallelism) if self._local else self.executors * self.cores

    @property
    def nodes(self) -> Mapping[str, int] | None:
        return self._executors.nodes()

    def change_to(self, executors: int, seconds: float, places: Sequence[Slot] = ()) -> int:
        """Asks for so many, and says how many there are after so long at the most."""
        try:
            self._executors.change_to(
                executors, seconds, dict.fromkeys(places, ExecutorSize()) if self._pinned else None
            )
        except ClusterError:
            # the cluster has no more: keep the executors that came
            return self.executors
        return self.executors


def _memory_mb(session: SparkSession) -> int:
    return parsed_megabytes(session, session.sparkContext.getConf().get("spark.executor.memory", "1g") or "1g")
