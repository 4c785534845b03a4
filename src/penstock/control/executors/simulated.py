"""A cluster in simulated time: what a pipeline does on its slots is what its models say. No Spark, no Java; the
controller cannot tell."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.resources import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.control.core.blame import reason_of
from penstock.control.core.incoming import Died, DriverEnded, NodeJoined, NodeLost
from penstock.control.core.outcome import OrderKind
from penstock.control.core.records import NodeRecord
from penstock.control.core.states import NodeState
from penstock.control.executors.simulated_pipeline import SimulatedDriver, Times
from penstock.digits import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.cluster.topology import Cluster, Slot
    from penstock.control.core.incoming import Observation
    from penstock.control.core.outcome import PipelineOrder
    from penstock.control.core.sizing import Sizing


class SimulatedExecutors:
    def __init__(
        self,
        sizing: Sizing,
        unit_slots: int,
        times: Times | None = None,
        backlogs: Mapping[str, float] | None = None,
        now: float = 0.0,
    ) -> None:
        """`backlogs` is what waits for each pipeline when it is first wanted; `now`, when loads begin of those that are
        wanted before anybody looks, as after a restart."""
        self._sizing = sizing
        self._unit_slots = unit_slots
        self._times = times or Times()
        self._backlogs = backlogs or {}
        self._pipelines: dict[str, SimulatedDriver] = {}
        self._happened: list[Observation] = []
        self._fence = 0
        self._now = now

    def want(self, orders: Iterable[PipelineOrder], fence: int) -> None:
        if fence < self._fence:
            return
        self._fence = fence
        wanted = {order.pipeline: order for order in orders}
        for order in wanted.values():
            try:
                self._take(order)
            except Exception as error:  # one that cannot be started is no reason to leave the others
                self._happened.append(self._dead(order, error))
        for name in set(self._pipelines) - set(wanted):
            del self._pipelines[name]

    def _take(self, order: PipelineOrder) -> None:
        name = order.pipeline
        known = self._pipelines.get(name)
        if known is None or known.order.submission != order.submission:
            self._pipelines[name] = SimulatedDriver(
                order, self._now, self._sizing, self._unit_slots, self._times, self._backlogs.get(name, 0.0)
            )
        else:
            known.take(order, self._now)

    def _dead(self, order: PipelineOrder, error: Exception) -> Observation:
        """It is on no slot: nothing of it is left."""
        self._pipelines.pop(order.pipeline, None)
        ended = order.kind is OrderKind.END
        return DriverEnded(order.pipeline) if ended else Died(order.pipeline, order.incarnation, reason_of(error))

    def settle_in(self, times: Times) -> None:
        """From now on everything takes so long: for those that run already, too."""
        self._times = times
        for pipeline in self._pipelines.values():
            pipeline.times = times

    def observe(self, now: float) -> list[Observation]:
        self._now = max(self._now, now)
        observations, self._happened = self._happened, []
        for pipeline in list(self._pipelines.values()):
            try:
                observations += pipeline.look(self._now)
            except Exception as error:  # its arithmetic is its own
                observations.append(self._dead(pipeline.order, error))
        return observations

    def close(self) -> None:
        """Nothing is left behind: what is simulated lives in this process."""

    def kill_driver(self, name: str, why: str = "killed") -> None:
        died = self._pipelines[name].die(why) if name in self._pipelines else None
        if died is not None:
            self._happened.append(died)

    def lose_node(self, node: str) -> None:
        for pipeline in self._pipelines.values():
            pipeline.lose(node)

    def held(self) -> dict[Slot, list[str]]:
        """Who is on which slot right now, whatever anybody was told."""
        holders: dict[Slot, list[str]] = {}
        for name, pipeline in self._pipelines.items():
            for slot in pipeline.slots():
                holders.setdefault(slot, []).append(name)
        return holders


class SimulatedNodes:
    """As many nodes as asked for, all alike, or those of a cluster; a new one joins after a while."""

    def __init__(
        self,
        count: int,
        slots: int,
        join_seconds: float = 5.0,
        price: float | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """`price` is that of a node for an hour."""
        self._slots = slots
        self._price = price
        self._given = {} if cluster is None else {node.name: node for node in cluster.nodes}
        self._join_seconds = join_seconds
        self._made = 0
        names = [self._next_name() for _ in range(count)] if cluster is None else list(self._given)
        self._joins: dict[str, float] = dict.fromkeys(names, 0.0)
        self._lost: list[str] = []
        self._now = 0.0

    def _next_name(self) -> str:
        self._made += 1
        while f"n{self._made}" in self._given:
            self._made += 1
        return f"n{self._made}"

    def know(self, names: Iterable[str]) -> None:
        """Nodes an earlier controller had: they are still there, and their names are taken."""
        for name in names:
            self._joins.setdefault(name, 0.0)
            if name.startswith("n") and is_whole(name[1:]):
                self._made = max(self._made, int(name[1:]))

    def node(self, name: str) -> NodeRecord:
        if name in self._given:
            given = self._given[name]
            return NodeRecord(
                name, given.rack, given.slots, NodeState.JOINING, self._now, MappingProxyType(dict(given.capacity))
            )
        capacity = {CPU: CPU_POINTS_PER_SLOT * self._slots, MEMORY: DEFAULT_SLOT_MEMORY_MB * self._slots}
        return NodeRecord(
            name, "r1", self._slots, NodeState.JOINING, self._now, MappingProxyType(capacity), self._price
        )

    def acquire(self, count: int, size: str | None) -> list[NodeRecord]:
        names = [self._next_name() for _ in range(count)]
        self._joins.update(dict.fromkeys(names, self._now + self._join_seconds))
        return [self.node(name) for name in names]

    def release(self, name: str) -> None:
        self._joins.pop(name, None)

    def lose(self, name: str) -> None:
        self._joins.pop(name, None)
        self._lost.append(name)

    def lingering(self) -> list[float | None]:
        return []

    def observe(self, now: float) -> list[Observation]:
        self._now = max(self._now, now)
        lost, self._lost = self._lost, []
        joined = [name for name, at in self._joins.items() if at <= self._now]
        for name in joined:
            del self._joins[name]
        return [*(NodeLost(name) for name in lost), *(NodeJoined(self.node(name)) for name in joined)]
