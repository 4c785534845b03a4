"""Executors of a running query: added and let go while it goes on. Executors are its slots, one core each.

Dynamic allocation is on, or Spark would take all there is at once, and silent, or it would decide by itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, ClusterError
from penstock.cluster.slot_resources import SLOT, resource_name, slot_resource_name

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

    def hosts(self) -> dict[str, str]:
        """Return the host of every executor, by its id."""
        hosts, known = {}, set(self.ids())
        listed = self._context.statusStore().executorList(True).iterator()
        while listed.hasNext():
            summary = listed.next()
            if summary.id() in known:
                hosts[str(summary.id())] = str(summary.hostPort()).rpartition(":")[0]
        return hosts

    def end(self, names: Collection[str]) -> None:
        """End these executors and ask for no others in their place."""
        scala_map = getattr(self._java.scala.collection.immutable, "Map$")
        left = len(self.ids()) - len(names)
        self._context.requestTotalExecutors(left, 0, getattr(scala_map, "MODULE$").empty())
        self._let_go(names)

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


# Executors of a running query on slots somebody else chose.
#
# Spark schedules the tasks of a stage on executors of the stage's own resource profile, and a query's stages are of
# the default profile: so executors that ask for a slot (a profile each) would not be used. What works: the Master is
# asked by the profile that names the slot, and an executor that comes up and asks the driver which profile it is of
# is told the default one. Master and executor never compare notes. Only the table the driver answers from has to be
# written by hand.


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
        self._sizes: dict[Slot, tuple[int, int]] = {}
        """Cores and MB of executors that are not of one core and the usual memory."""
        self._profiles: dict[Slot, Any] = {}
        """What the Master is asked with."""
        self._slot_of: dict[str, Slot] = {}
        """Where executors are, by id: they never move."""

    def nodes(self) -> dict[str, int]:
        """How many are on each node now, as they say themselves."""
        return dict(Counter(slot.node for slot in self.here().values()))

    def change_to(self, count: int, seconds: float = CHANGE_SECONDS, places: Collection[Slot] | None = None) -> float:
        """One on each of `places`, and no others. Those that are gained come before any is let go; returns how long it
        took."""
        if places is None or len(places) != count:
            raise BadInputError("slots: whoever started this run names its slots")
        waited, wanted = Stopwatch(), frozenset(places)
        self._ask(self._asked | wanted)
        while missing := wanted - set(self.here().values()):
            if waited.seconds() > seconds:
                # what cannot be had is not asked for any longer, or it would come when somebody else lets go of it
                self._ask(self._asked - missing)
                short = ", ".join(map(str, sorted(missing)))
                raise ClusterError(f"slots that did not come within {seconds:g} s: {short}")
            pause(LOOK_SECONDS)
        self._ask(wanted)
        surplus = [name for name, slot in self.here().items() if slot not in wanted]
        self._let_go(surplus)
        while set(surplus) & set(self.ids()) and waited.seconds() < seconds:
            pause(LOOK_SECONDS)
        return waited.seconds()

    @property
    def asked(self) -> frozenset[Slot]:
        """Slots that the Master is asked to keep executors on."""
        return self._asked

    def set_size(self, slot: Slot, cores: int, memory_mb: int) -> None:
        """Set the size of the next executor on a slot that is not held."""
        if self._sizes.get(slot, (1, self._memory_mb)) != (cores, memory_mb):
            self._sizes[slot] = (cores, memory_mb)
            self._profiles.pop(slot, None)

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
        cores, memory_mb = self._sizes.get(slot, (1, self._memory_mb))
        executor = made.ExecutorResourceRequests().cores(cores).memory(f"{memory_mb}m")
        for name in (resource_name(slot.node), SLOT, slot_resource_name(slot.node, slot.number)):
            executor = executor.resource(name, 1, "", "")
        task = made.TaskResourceRequests().cpus(1).resource(SLOT, 1.0)
        return made.ResourceProfileBuilder().require(executor).require(task).build()

    def here(self) -> dict[str, Slot]:
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
