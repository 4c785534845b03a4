"""Executors of a running query on slots somebody else chose.

Spark schedules the tasks of a stage on executors of the stage's own resource profile, and a query's stages are of the
default profile: so executors that ask for a slot (a profile each) would not be used. What works: the Master is asked by
the profile that names the slot, and an executor that comes up and asks the driver which profile it is of is told the
default one. Master and executor never compare notes. Only the table the driver answers from has to be written by hand.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from penstock.clock import Stopwatch, pause
from penstock.errors import BadInputError, ClusterError
from penstock.spark.fused.executors import CHANGE_SECONDS, FusedExecutors
from penstock.spark.standalone.daemons import SLOT, resource_name, slot_resource_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    from penstock.cluster.topology import Slot

LOOK_SECONDS = 0.1
_PROFILES = "resourceProfileIdToResourceProfile"


class PinnedExecutors(FusedExecutors):
    """On Workers that offer `slot`, a resource named after their node, and one for each of their slots; one core
    each."""

    def __init__(self, session: SparkSession, memory_mb: int) -> None:
        super().__init__(session)
        self._memory_mb = memory_mb
        self._asked: frozenset[Slot] = frozenset()
        """What the Master is to keep."""
        self._profiles: dict[Slot, Any] = {}
        """What the Master is asked with."""
        self._slot_of: dict[str, Slot] = {}
        """Where executors are, by id: they never move."""

    def nodes(self) -> dict[str, int]:
        """How many are on each node now, as they say themselves."""
        return dict(Counter(slot.node for slot in self._here().values()))

    def change_to(self, count: int, seconds: float = CHANGE_SECONDS, places: Collection[Slot] | None = None) -> float:
        """One on each of `places`, and no others. Those that are gained come before any is let go; returns how long it
        took."""
        if places is None or len(places) != count:
            raise BadInputError("slots: whoever started this run names its slots")
        waited, wanted = Stopwatch(), frozenset(places)
        self._ask(self._asked | wanted)
        while missing := wanted - set(self._here().values()):
            if waited.seconds() > seconds:
                # what cannot be had is not asked for any longer, or it would come when somebody else lets go of it
                self._ask(self._asked - missing)
                short = ", ".join(map(str, sorted(missing)))
                raise ClusterError(f"slots that did not come within {seconds:g} s: {short}")
            pause(LOOK_SECONDS)
        self._ask(wanted)
        surplus = [name for name, slot in self._here().items() if slot not in wanted]
        self._let_go(surplus)
        while set(surplus) & set(self.ids()) and waited.seconds() < seconds:
            pause(LOOK_SECONDS)
        return waited.seconds()

    def _ask(self, slots: frozenset[Slot]) -> None:
        if slots == self._asked:
            return
        asked: Any = self._java.scala.collection.immutable.HashMap()
        for slot in sorted(slots | self._asked):
            asked = asked.updated(self._profile(slot), int(slot in slots))
        self._context.schedulerBackend().doRequestTotalExecutors(asked)
        self._asked = slots

    def _profile(self, slot: Slot) -> Any:
        if slot not in self._profiles:
            for_master, for_executor = self._made_profile(slot), self._made_profile(slot)
            for_executor.setToDefaultProfile()
            try:
                manager = self._context.resourceProfileManager()
                table = manager.getClass().getDeclaredField(_PROFILES)
                table.setAccessible(True)
                table.get(manager).update(for_master.id(), for_executor)
            except Py4JError as error:
                version = self._context.version()
                raise ClusterError(f"Spark {version} does not let executors be put on named nodes: {error}") from error
            self._profiles[slot] = for_master
        return self._profiles[slot]

    def _made_profile(self, slot: Slot) -> Any:
        made = self._java.org.apache.spark.resource
        executor = made.ExecutorResourceRequests().cores(1).memory(f"{self._memory_mb}m")
        for name in (resource_name(slot.node), SLOT, slot_resource_name(slot.node, slot.number)):
            executor = executor.resource(name, 1, "", "")
        task = made.TaskResourceRequests().cpus(1).resource(SLOT, 1.0)
        return made.ResourceProfileBuilder().require(executor).require(task).build()

    def _here(self) -> dict[str, Slot]:
        """The slots of executors that are there and have said which they have, the oldest first."""
        names = self.ids()
        if any(name not in self._slot_of for name in names):
            self._learn_places()
        return {name: self._slot_of[name] for name in names if name in self._slot_of}

    def _learn_places(self) -> None:
        """By the resource of its own slot: the address of `slot` may be another one of the same node's."""
        executors = self._context.statusStore().executorList(True).iterator()
        while executors.hasNext():
            summary = executors.next()
            if summary.id() in self._slot_of:
                continue
            resources = summary.resources()
            for slot in self._profiles:
                if resources.contains(slot_resource_name(slot.node, slot.number)):
                    self._slot_of[str(summary.id())] = slot
