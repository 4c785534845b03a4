"""Executors of a running query: added and let go while it goes on. Executors are its slots, one core each.

Dynamic allocation is on, or Spark would take all there is at once, and silent, or it would decide by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch, pause
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    from penstock.cluster.topology import Slot

NEVER = "30d"
CHANGE_SECONDS = 60.0
GENTLE_SECONDS = 1.0
"""So long an executor may go on with tasks before it is let go all the same."""


def executor_settings(slots: int, *, by_slot: bool) -> dict[str, str]:
    """For a session whose executors are slots. `by_slot`: Workers offer the resource `slot`, so that nobody gets more
    than there is."""
    settings = {
        "spark.executor.cores": "1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": str(slots),
        "spark.dynamicAllocation.initialExecutors": str(slots),
        "spark.dynamicAllocation.maxExecutors": "2147483647",
        "spark.dynamicAllocation.schedulerBacklogTimeout": NEVER,
        "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": NEVER,
        "spark.dynamicAllocation.executorIdleTimeout": NEVER,
        "spark.dynamicAllocation.shuffleTracking.timeout": NEVER,
    }
    if slots:
        settings["spark.executor.instances"] = str(slots)
    if by_slot:
        settings |= {"spark.executor.resource.slot.amount": "1", "spark.task.resource.slot.amount": "1"}
    return settings


class FusedExecutors:
    def __init__(self, session: SparkSession) -> None:
        self._context: Any = session.sparkContext._jsc.sc()
        self._java: Any = session.sparkContext._jvm

    def ids(self) -> list[str]:
        """The oldest first."""
        listed = self._context.getExecutorIds().mkString(",").split(",")
        return sorted((name for name in listed if name), key=lambda name: (len(name), name))

    def wait_for(self, count: int, seconds: float = CHANGE_SECONDS) -> float:
        """Until at least so many are there; returns how long it took."""
        waited = Stopwatch()
        while len(self.ids()) < count:
            if waited.seconds() > seconds:
                raise ClusterError(
                    f"{len(self.ids())} of {count} slots came within {seconds:g} s: the cluster has no more free, or "
                    "none with enough memory"
                )
            pause(0.1)
        return waited.seconds()

    def nodes(self) -> dict[str, int] | None:
        """How many are on each node, where that is known."""
        return None

    def change_to(self, count: int, seconds: float = CHANGE_SECONDS, places: Collection[Slot] | None = None) -> float:
        """Asks for more, or lets the youngest go; the query never stops. Returns how long it took. Spark chooses the
        nodes."""
        waited = Stopwatch()
        scala_map = getattr(self._java.scala.collection.immutable, "Map$")
        self._context.requestTotalExecutors(count, 0, getattr(scala_map, "MODULE$").empty())
        surplus = self.ids()[count:]
        self._let_go(surplus)
        try:
            self.wait_for(count, seconds)
        except ClusterError:
            # what cannot be had is not asked for any longer, or it would come when somebody else lets go of it
            self._context.requestTotalExecutors(len(self.ids()), 0, getattr(scala_map, "MODULE$").empty())
            raise
        while len(self.ids()) > count and waited.seconds() < seconds:
            pause(0.1)
        return waited.seconds()

    def _let_go(self, names: Collection[str]) -> None:
        """Each between two of its tasks, where such a moment comes soon: what is under way would be done again. They
        are no longer asked for, so the target is left as it is: lowered once more it would replace nobody who dies."""
        backend, left, waited = self._context.schedulerBackend(), list(names), Stopwatch()
        while left:
            by_force = waited.seconds() > GENTLE_SECONDS
            gone = backend.killExecutors(self._java.PythonUtils.toSeq(left), False, False, by_force)
            ended = set(gone.mkString(",").split(","))
            left = [] if by_force else [name for name in left if name not in ended]
            if left:
                pause(GENTLE_SECONDS / 50)
