"""Executors of a running query: added and released while it runs. Executors are its slots, one core each.

Dynamic allocation is on, or Spark would take the whole cluster at once, and silent, or it would decide by itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, ClusterError
from penstock.cluster.contract import ExecutorSize
from penstock.cluster.slot_resources import SLOT, resource_name, slot_resource_name
from penstock.spark.internals.declarations import touches
from penstock.spark.internals.error_messages import spark_errors
from penstock.spark.internals.java import java_classes, java_context

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import SparkSession

    from penstock.cluster.topology import Slot


NEVER = "30d"
CHANGE_SECONDS = 60.0
GENTLE_SECONDS = 1.0
"""Seconds an executor may continue with its tasks before it is released all the same."""


def executor_settings(slots: int, *, by_slot: bool) -> dict[str, str]:
    """Return settings for a session whose executors are slots. `by_slot`: Workers offer the resource `slot`, so that no
    application gets more executors than there are slots."""
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


NO_WAY_BY_HAND = "PySpark can neither ask for executors nor end them; Scala's SparkContext does both."


@touches("`SparkContext._jsc.sc().getExecutorIds`", "PySpark does not say which executors there are.")
def executor_ids(session: SparkSession) -> list[str]:
    """Return the ids of the executors that are registered now, the oldest first."""
    listed = java_context(session).getExecutorIds().mkString(",").split(",")
    return sorted((name for name in listed if name), key=lambda name: (len(name), name))


@touches("`SparkContext._jsc.sc().requestTotalExecutors`", NO_WAY_BY_HAND)
def request_executors(session: SparkSession, count: int) -> None:
    """Ask for `count` executors of the default profile in all."""
    scala_map = getattr(java_classes(session).scala.collection.immutable, "Map$")
    java_context(session).requestTotalExecutors(count, 0, getattr(scala_map, "MODULE$").empty())


@touches("`schedulerBackend().requestTotalExecutors`", NO_WAY_BY_HAND)
def request_executors_by_profile(session: SparkSession, counts: Mapping[int, int]) -> None:
    """Ask for a number of executors of each of these resource profiles, by their ids: Spark itself asks a second after
    it found that tasks wait."""
    none: Any = java_classes(session).scala.collection.immutable.HashMap()
    totals = none
    for profile, count in counts.items():
        totals = totals.updated(profile, count)
    java_context(session).schedulerBackend().requestTotalExecutors(totals, none, none)


@touches("`schedulerBackend().killExecutors`, PythonUtils.toSeq", NO_WAY_BY_HAND)
def kill_executors(session: SparkSession, names: Collection[str], *, lower_target: bool, force: bool) -> set[str]:
    """End executors, those with tasks only by `force`; return those that end. `lower_target`: ask for as many fewer."""
    wanted = java_classes(session).PythonUtils.toSeq(list(names))
    gone = java_context(session).schedulerBackend().killExecutors(wanted, lower_target, False, force)
    return set(gone.mkString(",").split(",")) - {""}


@touches("`SparkContext._jsc.sc().statusStore().executorList`", "PySpark does not return the hosts of executors.")
def executor_hosts(session: SparkSession) -> dict[str, str]:
    """Return the host of every executor and of the driver, by id."""
    hosts = {}
    listed = java_context(session).statusStore().executorList(True).iterator()
    while listed.hasNext():
        summary = listed.next()
        hosts[str(summary.id())] = str(summary.hostPort()).rpartition(":")[0]
    return hosts


class FusedExecutors:
    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def ids(self) -> list[str]:
        """The oldest first."""
        return executor_ids(self._session)

    def wait_for(self, count: int, seconds: float = CHANGE_SECONDS) -> float:
        """Wait until at least `count` are there; return the seconds it took."""
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
        """Return the number of executors on each node, if that is known."""
        return None

    def change_to(
        self, count: int, seconds: float = CHANGE_SECONDS, places: Mapping[Slot, ExecutorSize] | None = None
    ) -> float:
        """Asks for more, or lets the youngest go; the query never stops. Returns how long it took. Spark chooses the
        nodes."""
        waited = Stopwatch()
        request_executors(self._session, count)
        surplus = self.ids()[count:]
        self._let_go(surplus)
        try:
            self.wait_for(count, seconds)
        except ClusterError:
            # withdraw the missing ones, or they would come when another application releases resources
            request_executors(self._session, len(self.ids()))
            raise
        while len(self.ids()) > count and waited.seconds() < seconds:
            pause(0.1)
        return waited.seconds()

    def hosts(self) -> dict[str, str]:
        """Return the host of every executor, by its id."""
        known, hosts = set(self.ids()), executor_hosts(self._session)
        return {name: host for name, host in hosts.items() if name in known}

    def end(self, names: Collection[str]) -> None:
        """End these executors and ask for no others in their place."""
        request_executors(self._session, len(self.ids()) - len(names))
        self._let_go(names)

    def _let_go(self, names: Collection[str]) -> None:
        """Release each executor between two of its tasks, if such a moment comes soon: a task under way would be done
        again. They are no longer asked for, so the target stays as it is: lowered once more, it would not replace an
        executor that dies."""
        left, waited = list(names), Stopwatch()
        while left:
            by_force = waited.seconds() > GENTLE_SECONDS
            ended = kill_executors(self._session, left, lower_target=False, force=by_force)
            left = [] if by_force else [name for name in left if name not in ended]
            if left:
                pause(GENTLE_SECONDS / 50)


# Executors of a running query on given slots.
#
# Spark schedules the tasks of a stage on executors of the stage's own resource profile, and a query's stages are of
# the default profile: so executors that ask for a slot (a profile each) would not be used. What works: the Master is
# asked by the profile that names the slot, and an executor that comes up and asks the driver which profile it is of
# gets the default one. Master and executor never compare profiles. Only the table the driver answers from has to be
# written by hand.


LOOK_SECONDS = 0.1
_PROFILES = "resourceProfileIdToResourceProfile"


PINNED = "Spark schedules a query on executors of the default profile only, which can name no node."


@touches("`schedulerBackend().doRequestTotalExecutors`", PINNED)
def request_pinned(session: SparkSession, counts: Mapping[Any, int]) -> None:
    """Ask the Master for a number of executors of each profile of Scala's."""
    asked: Any = java_classes(session).scala.collection.immutable.HashMap()
    for profile, count in counts.items():
        asked = asked.updated(profile, count)
    java_context(session).schedulerBackend().doRequestTotalExecutors(asked)


@touches(
    f"the field `{_PROFILES}` of ResourceProfileManager, by reflection; `setToDefaultProfile`",
    PINNED,
)
def pretend_default_profile(session: SparkSession, asked: Any, answered: Any) -> None:
    """Have executors that the Master starts by the profile `asked` work as those of the default profile."""
    context = java_context(session)
    answered.setToDefaultProfile()
    try:
        manager = context.resourceProfileManager()
        table = manager.getClass().getDeclaredField(_PROFILES)
        table.setAccessible(True)
        table.get(manager).update(asked.id(), answered)
    except spark_errors() as error:
        version = context.version()
        raise ClusterError(f"Spark {version} does not let executors be put on named nodes: {error}") from error


@touches("org.apache.spark.resource: ResourceProfileBuilder by `_jvm`", "PySpark's profiles cannot be handed to Scala.")
def scala_profile(session: SparkSession, memory_mb: int, resources: Collection[str], cores: int = 1) -> Any:
    """Return a profile of Scala's: a number of cores and MB, and one of each of these resources."""
    made = java_classes(session).org.apache.spark.resource
    executor = made.ExecutorResourceRequests().cores(cores).memory(f"{memory_mb}m")
    for name in resources:
        executor = executor.resource(name, 1, "", "")
    task = made.TaskResourceRequests().cpus(1).resource(SLOT, 1.0)
    return made.ResourceProfileBuilder().require(executor).require(task).build()


@touches("`SparkContext._jsc.sc().statusStore().executorList`", "PySpark does not say what resources executors hold.")
def executor_resources(session: SparkSession, names: Collection[str]) -> dict[str, set[str]]:
    """Return which of these resources each executor holds, by its id."""
    held: dict[str, set[str]] = {}
    executors = java_context(session).statusStore().executorList(True).iterator()
    while executors.hasNext():
        summary = executors.next()
        resources = summary.resources()
        held[str(summary.id())] = {name for name in names if resources.contains(name)}
    return held


class PinnedExecutors(FusedExecutors):
    """On Workers that offer `slot`, a resource named after their node, and one for each of their slots."""

    def __init__(self, session: SparkSession, memory_mb: int) -> None:
        """`memory_mb`: memory of executors whose size names none."""
        super().__init__(session)
        self._memory_mb = memory_mb
        self._asked: dict[Slot, ExecutorSize] = {}
        """Executors that the Master is asked to keep."""
        self._profiles: dict[tuple[Slot, ExecutorSize], Any] = {}
        """Profiles with which the Master is asked."""
        self._slot_of: dict[str, Slot] = {}
        """Slots of executors, by id: they never move."""

    def nodes(self) -> dict[str, int]:
        """Return the number of executors on each node now, as they report themselves."""
        return dict(Counter(slot.node for slot in self.here().values()))

    def change_to(
        self, count: int, seconds: float = CHANGE_SECONDS, places: Mapping[Slot, ExecutorSize] | None = None
    ) -> float:
        """Change to one executor of the given size on each of `places`, and no others. New ones come before any is
        released. An executor that changes its size is released before the other comes, for their slot is one; they
        change one after the other, each within `seconds`. Return the seconds it took."""
        if places is None or len(places) != count:
            raise BadInputError("slots: whoever started this run names its slots")
        waited = Stopwatch()
        wanted = {slot: self._full(size) for slot, size in places.items()}
        gained = {slot: size for slot, size in wanted.items() if slot not in self._asked}
        self._ask({**self._asked, **gained})
        self._await(set(gained), (), seconds)
        for slot in sorted(resized(self._asked, wanted)):
            self._resize(slot, wanted[slot], seconds)
        # executors that died since they were asked for are on their way again
        self._await(set(wanted), (), seconds)
        self._ask(wanted)
        surplus = [name for name, slot in self.here().items() if slot not in wanted]
        self._let_go(surplus)
        self._await_end(surplus, seconds)
        return waited.seconds()

    @property
    def asked(self) -> Mapping[Slot, ExecutorSize]:
        """Executors that the Master is asked to keep."""
        return dict(self._asked)

    def _full(self, size: ExecutorSize) -> ExecutorSize:
        return size if size.memory_mb is not None else ExecutorSize(self._memory_mb, size.cores)

    def _await(self, slots: Collection[Slot], former: Collection[str], seconds: float) -> None:
        """Wait until executors are on these slots, those of `former` not counted. Withdraw the missing ones if they do
        not come, or they would come when another application releases resources."""
        waited = Stopwatch()
        while missing := set(slots) - {slot for name, slot in self.here().items() if name not in former}:
            if waited.seconds() > seconds:
                self._ask({slot: size for slot, size in self._asked.items() if slot not in missing})
                short = ", ".join(map(str, sorted(missing)))
                raise ClusterError(f"slots that did not come within {seconds:g} s: {short}")
            pause(LOOK_SECONDS)

    def _await_end(self, names: Collection[str], seconds: float) -> None:
        waited = Stopwatch()
        while set(names) & set(self.ids()) and waited.seconds() < seconds:
            pause(LOOK_SECONDS)

    def _resize(self, slot: Slot, size: ExecutorSize, seconds: float) -> None:
        """Replace the executor on a slot by one of another size. One of the former size is asked for again if that does
        not come."""
        before = self._asked[slot]
        former = [name for name, where in self.here().items() if where == slot]
        self._ask({other: kept for other, kept in self._asked.items() if other != slot})
        self._let_go(former)
        self._await_end(former, seconds)
        self._ask({**self._asked, slot: size})
        try:
            self._await({slot}, former, seconds)
        except ClusterError:
            self._ask({**self._asked, slot: before})
            raise

    def _ask(self, wanted: Mapping[Slot, ExecutorSize]) -> None:
        if wanted == self._asked:
            return
        asked = sorted({*self._asked.items(), *wanted.items()}, key=lambda each: each[0])
        counts = {self._profile(slot, size): int(wanted.get(slot) == size) for slot, size in asked}
        request_pinned(self._session, counts)
        self._asked = dict(wanted)

    def _profile(self, slot: Slot, size: ExecutorSize) -> Any:
        if (slot, size) not in self._profiles:
            names = (resource_name(slot.node), SLOT, slot_resource_name(slot.node, slot.number))
            memory_mb = size.memory_mb or self._memory_mb
            asked, answered = (scala_profile(self._session, memory_mb, names, size.cores) for _ in range(2))
            pretend_default_profile(self._session, asked, answered)
            self._profiles[slot, size] = asked
        return self._profiles[slot, size]

    def here(self) -> dict[str, Slot]:
        """Return the slots of executors that are there and have reported theirs, the oldest first."""
        names = self.ids()
        if any(name not in self._slot_of for name in names):
            self._learn_places()
        return {name: self._slot_of[name] for name in names if name in self._slot_of}

    def _learn_places(self) -> None:
        """Learn the places by the resource of its own slot: the address of `slot` may be another one of the same
        node."""
        slots = {slot_resource_name(slot.node, slot.number): slot for slot, _ in self._profiles}
        for executor, held in executor_resources(self._session, slots).items():
            for name in held:
                self._slot_of[executor] = slots[name]


def resized(before: Mapping[Slot, ExecutorSize], after: Mapping[Slot, ExecutorSize]) -> set[Slot]:
    """Return the slots of both whose executor has another size."""
    return {slot for slot, size in after.items() if before.get(slot, size) != size}
