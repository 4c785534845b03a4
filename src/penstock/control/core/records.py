"""What the controller knows: pipelines, nodes, triggers and the policy, as values.

Three things are kept apart for every pipeline: `assigned` is what was decided, `requested` what its executors were
asked for, `held` what they were last seen on. `may_hold` is every slot that cannot be excluded: nobody else is given
one of those.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ImpossibleMoveError
from penstock.cluster.topology import Slot
from penstock.control.elasticity.memory import Following
from penstock.planning.registry import DEFAULT_SHARER
from penstock.planning.sharing.measures import Served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# The lives of pipelines and nodes: named states, and one table each of what moves them.
#
# submitted ─► starting ─► active ─► draining ─► drained ─► starting (another share) ─► active
# │           │          │                      └─► paused (by a person), waiting (no share; positions kept)
# └─► waiting └──────────┴─► backing-off ─► starting, or failed
# all but killed ─► ending ─► killed
#
# A move that is not in the table is the caller's error and raises; no `if` lets it pass.


class PipelineState(StrEnum):
    SUBMITTED = "submitted"
    WAITING = "waiting"
    """Wants to run and has no share; its positions are kept."""
    STARTING = "starting"
    ACTIVE = "active"
    DRAINING = "draining"
    """Its sources pull no more; what is in flight is being finished."""
    DRAINED = "drained"
    PAUSED = "paused"
    BACKING_OFF = "backing-off"
    """Its driver died; it starts again after a while that doubles."""
    ENDING = "ending"
    FAILED = "failed"
    KILLED = "killed"


class Happening(StrEnum):
    PLACED = "placed"
    SHORT = "short"
    STARTED = "started"
    DEACTIVATED = "deactivated"
    DRAINED = "drained"
    DIED = "died"
    RETRIED = "retried"
    GAVE_UP = "gave up"
    PAUSED = "paused"
    ACTIVATED = "activated"
    KILLED = "killed"
    ENDED = "ended"
    BROKE = "broke"
    """It cannot be decided upon: steps raise because of it."""


_P, _H = PipelineState, Happening
PIPELINE_MOVES: Mapping[tuple[PipelineState, Happening], PipelineState] = MappingProxyType(
    {
        (_P.SUBMITTED, _H.PLACED): _P.STARTING,
        (_P.SUBMITTED, _H.SHORT): _P.WAITING,
        (_P.SUBMITTED, _H.PAUSED): _P.PAUSED,
        (_P.WAITING, _H.PLACED): _P.STARTING,
        (_P.WAITING, _H.PAUSED): _P.PAUSED,
        (_P.STARTING, _H.STARTED): _P.ACTIVE,
        (_P.STARTING, _H.DEACTIVATED): _P.DRAINING,
        (_P.STARTING, _H.DIED): _P.BACKING_OFF,
        (_P.ACTIVE, _H.DEACTIVATED): _P.DRAINING,
        (_P.ACTIVE, _H.DIED): _P.BACKING_OFF,
        (_P.DRAINING, _H.DRAINED): _P.DRAINED,
        # whatever was in flight is not committed and comes again: a dead driver is as drained as can be
        (_P.DRAINING, _H.DIED): _P.DRAINED,
        (_P.DRAINED, _H.PLACED): _P.STARTING,
        (_P.DRAINED, _H.SHORT): _P.WAITING,
        (_P.DRAINED, _H.PAUSED): _P.PAUSED,
        (_P.BACKING_OFF, _H.RETRIED): _P.WAITING,
        (_P.BACKING_OFF, _H.GAVE_UP): _P.FAILED,
        (_P.BACKING_OFF, _H.PAUSED): _P.PAUSED,
        (_P.PAUSED, _H.ACTIVATED): _P.WAITING,
        (_P.FAILED, _H.ACTIVATED): _P.WAITING,
        **{(state, _H.KILLED): _P.ENDING for state in _P if state not in {_P.ENDING, _P.KILLED}},
        (_P.ENDING, _H.ENDED): _P.KILLED,
        **{(state, _H.BROKE): _P.FAILED for state in _P if state not in {_P.ENDING, _P.KILLED, _P.FAILED}},
    }
)

WANTING = frozenset({_P.SUBMITTED, _P.WAITING, _P.STARTING, _P.ACTIVE, _P.DRAINING, _P.DRAINED, _P.BACKING_OFF})
"""States in which a pipeline takes part when the cluster is shared (unless it is to be paused)."""

RUNNING = frozenset({_P.STARTING, _P.ACTIVE})

DEADLINES: Mapping[PipelineState, float] = MappingProxyType({_P.STARTING: 240.0, _P.DRAINING: 60.0, _P.ENDING: 30.0})
"""Seconds after which a state is no longer waited for: a start counts as a death, draining and ending are forced."""


class NodePhase(StrEnum):
    JOINING = "joining"
    ALIVE = "alive"
    LEAVING = "leaving"
    """To be released: nothing new is placed there, and what runs there moves away."""
    LOST = "lost"
    GONE = "gone"


class NodeHappening(StrEnum):
    JOINED = "joined"
    LOST = "lost"
    RELEASED = "released"
    EMPTIED = "emptied"
    GAVE_UP = "gave up"


_N, _E = NodePhase, NodeHappening
NODE_MOVES: Mapping[tuple[NodePhase, NodeHappening], NodePhase] = MappingProxyType(
    {
        (_N.JOINING, _E.JOINED): _N.ALIVE,
        (_N.JOINING, _E.GAVE_UP): _N.GONE,
        (_N.JOINING, _E.RELEASED): _N.GONE,
        (_N.ALIVE, _E.LOST): _N.LOST,
        (_N.ALIVE, _E.RELEASED): _N.LEAVING,
        (_N.LEAVING, _E.EMPTIED): _N.GONE,
        (_N.LEAVING, _E.LOST): _N.GONE,
        (_N.LOST, _E.JOINED): _N.ALIVE,
        (_N.LOST, _E.RELEASED): _N.GONE,
        (_N.GONE, _E.JOINED): _N.ALIVE,
    }
)

JOIN_SECONDS = 120.0
"""A node that has not come by then is given up."""


def pipeline_after(state: PipelineState, happening: Happening) -> PipelineState:
    after = PIPELINE_MOVES.get((state, happening))
    if after is None:
        raise ImpossibleMoveError(f"a pipeline that is {state} cannot have {happening}")
    return after


def node_after(state: NodePhase, happening: NodeHappening) -> NodePhase:
    after = NODE_MOVES.get((state, happening))
    if after is None:
        raise ImpossibleMoveError(f"a node that is {state} cannot have {happening}")
    return after


DEFAULT_PRIORITY = 2
"""Where all pipelines start unless said: one level is left above for triggers."""

PASS_SECONDS = 10.0
"""A pass is made at least so often."""


MOST_UNITS = 1_000_000
"""Of one pipeline. Whatever models or applications say, no more is asked for: policies add up what all desire."""


class EngineName(StrEnum):
    AUTO = "auto"
    FUSED = "fused"
    PLACED = "placed"
    ATTACHED = "attached"
    """An application that was not written for us and registered itself: its driver is its own."""


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """What must hold: tuples/s, and milliseconds of latency."""

    rate: float | None = None
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class PlanChoices:
    """The policies a pipeline is planned by, and the size of its executors. None: the controller's policy decides."""

    allocator: str | None = None
    placer: str | None = None
    segmenter: str | None = None
    executor_memory_mb: float | None = None
    """Memory of an executor. Every slot that a pipeline uses is an executor of its own."""
    executor_cores: float | None = None
    """CPU of an executor of a fused pipeline, in cores."""


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    """One slot of a plan: the executor on it, and the threads in that."""

    node: str
    slot: int
    threads: Mapping[str, int]
    """Threads of each operator; empty in a fused plan, where every slot runs the whole pipeline."""
    memory_mb: float
    """Memory of the executor. The pass counts exactly this against the memory of the node."""

    @property
    def place(self) -> Slot:
        return Slot(self.node, self.slot)


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """The threads of a pipeline on slots of nodes.

    Made by the pass (`control.core.passes`) with the pipeline's own allocator and placer, kept in its record, and
    sent to its executors in `PipelineOrder`. Executors run it as it is: the same threads on the same slots, with
    executors of this size. None of them plans anything.
    """

    engine: EngineName
    """Fused or placed."""
    allocator: str
    placer: str
    segmenter: str
    rate: float
    """Tuples/s it was made for."""
    predicted_rate: float | None
    """Tuples/s it is predicted to keep; None if nothing limits it, or nothing is known."""
    slots: tuple[PlannedSlot, ...]
    demands: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    """Amount of each resource that one thread needs, by operator; of a fused plan those of a slot, by "slot"."""
    executor_cores: float = 1.0
    executor_memory_mb: float = 0.0
    """Memory of an executor; of a placed plan, the least."""
    limit: int = 0
    """Units of the share it was made for."""
    whole: bool = True
    """Whether it has all that it was made for; if not, it is made again in the next pass."""

    @property
    def places(self) -> tuple[Slot, ...]:
        return tuple(slot.place for slot in self.slots)

    @property
    def threads(self) -> Mapping[str, int]:
        """Threads of each operator on all slots."""
        counts: Counter[str] = Counter()
        for slot in self.slots:
            counts.update(slot.threads)
        return counts


@dataclass(frozen=True, slots=True)
class Submission:
    """What was asked for. Counts are of units: nodes, unless the controller divides them further."""

    name: str
    pipeline: Any
    """The name of a built-in pipeline, `module:attribute`, a path, or a pipeline's document."""
    definition: Mapping[str, Any] | None = None
    """Its document, whatever `pipeline` is: what sizes are worked out from."""
    fingerprint: str = ""
    """Of the definition: two submissions with the same one are alike to the models."""
    target: ServiceTarget = ServiceTarget()
    desired: int | None = None
    """None: as many as the models say the target needs."""
    minimum: int = 1
    maximum: int | None = None
    priority: int | None = None
    engine: EngineName = EngineName.AUTO
    load: str | None = None
    elastic: Mapping[str, Any] | None = None
    """How it follows its load: options of `ElasticOptions`; None: as they are by default."""
    plan: Mapping[str, Any] | None = None
    """What was submitted, where it was a plan: its slots are those it gets, as long as they are free."""
    options: Mapping[str, Any] | None = None
    """Options of its runs, by the names of `RunConfig`."""
    choices: PlanChoices = PlanChoices()


@dataclass(frozen=True, slots=True)
class Trigger:
    """A condition over what a pipeline reports; while it is on the pipeline has the trigger's priority."""

    id: int
    kind: str
    """A kind of `control.core.trigger_kinds`, with its options."""
    above: float = 0.0
    """The threshold; the kind says of what."""
    below: float | None = None
    """Off only below this (hysteresis); None: 0.75 of what switches it on."""
    share: float = 0.8
    """batch-share: the part of the rows of a batch that must be above."""
    field: str = ""
    code: str = ""
    """module:attribute of a function that takes the readings and says whether it is to be on."""
    for_seconds: float = 3.0
    """Dwell: the condition must hold for so long before anything is switched."""
    priority: int = 1
    enabled: bool = True
    on: bool = False
    on_since: float | None = None
    leaning_since: float | None = None
    """Since when the condition says the opposite of `on`."""
    by_hand: bool = False
    """Switched on by hand: stays on until it is switched off by hand."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a pipeline's share that is under way, for its overhead in three stages."""

    decisions: tuple[int, ...]
    asked_at: float
    drained_at: float | None = None
    placed_at: float | None = None


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    submission: Submission
    number: int
    """In the order they were submitted."""
    state: PipelineState
    since: float
    target: ServiceTarget
    minimum: int
    priority: int
    initial_priority: int
    maximum: int | None = None
    load: str | None = None
    pending_priority: int | None = None
    """To be written once it has drained, as the documented order has it."""
    paused: bool = False
    needed: int = 1
    """Units for the present rate by the models, or those it was submitted with if they cannot say."""
    grown: int = 0
    """Units of `needed` that its placer needs beyond what the models say."""
    granted: int = 0
    """Units of its share; its plan may use fewer."""
    plan: PipelinePlan | None = None
    """What was decided; it is on `assigned`."""
    ordered: PipelinePlan | None = None
    """What its executors were asked to run; it is on `requested`."""
    refused: str | None = None
    """Why there is no plan for all it was granted."""
    assigned: tuple[Slot, ...] = ()
    requested: tuple[Slot, ...] = ()
    held: tuple[Slot, ...] = ()
    may_hold: frozenset[Slot] = frozenset()
    serial: int = 0
    """Of the last order; a report about an older one says nothing about this one."""
    incarnation: int = 0
    """Of its driver: what an earlier one reports is not heard."""
    forced: bool = False
    """A deadline has passed: end it without asking."""
    deaths: int = 0
    retry_at: float | None = None
    waiting: str | None = None
    """Why it has less than its minimum."""
    waiting_since: float | None = None
    served: Served = field(default_factory=Served)
    change: Change | None = None
    triggers: tuple[Trigger, ...] = ()
    readings: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The last it reported, by metric."""
    elastic: Mapping[str, Any] | None = None
    elastic_units: int | None = None
    """The size that follows the load; None: it was not decided yet, and the target says the size."""
    following: Following = field(default_factory=Following)
    """What is remembered for the next decision about its size; gone with the controller's process."""

    @property
    def name(self) -> str:
        return self.submission.name

    @property
    def target_places(self) -> tuple[Slot, ...]:
        """Slots that its executors are to be on once all are free."""
        return self.assigned if self.plan is None or not self.assigned else self.plan.places

    @property
    def desired(self) -> int:
        """clamp(asked for, or needed; minimum, maximum) in units."""
        wanted = self.needed if self.submission.desired is None else self.submission.desired
        return max(self.minimum, min(wanted, MOST_UNITS if self.maximum is None else self.maximum))


@dataclass(frozen=True, slots=True)
class NodeRecord:
    name: str
    rack: str
    slots: int
    state: NodePhase
    since: float
    capacity: Mapping[str, float]
    price: float | None = None


class Rescheduling(StrEnum):
    LIVE = "live"
    """The priority is written at once; executors come and go while the pipeline flows."""
    DOCUMENTED = "documented"
    """Deactivate, drain, write the priority, reschedule, activate: the order of messages the publication has."""


@dataclass(frozen=True, slots=True)
class Policy:
    sharing: str = DEFAULT_SHARER
    rescheduling: Rescheduling = Rescheduling.LIVE
    """Every engine here lets executors come and go, so nobody is stopped unless that is asked for."""
    default_priority: int = DEFAULT_PRIORITY
    placer: str | None = None
    """Of pipelines that name none of their own; None: the product's default. So for the next two."""
    allocator: str | None = None
    segmenter: str | None = None

    @property
    def fixes_priorities(self) -> bool:
        """SPS: priority is given before submission; a change while running is refused."""
        return self.sharing.partition(":")[0] == "static-priority"


@dataclass(frozen=True)
class ControllerState:
    """All the controller knows. Nothing in it changes: a step makes another one."""

    policy: Policy = Policy()
    unit_slots: int = 1
    """Slots of one unit: what shares, minima and maxima count."""
    pipelines: Mapping[str, PipelineRecord] = field(default_factory=lambda: MappingProxyType({}))
    nodes: Mapping[str, NodeRecord] = field(default_factory=lambda: MappingProxyType({}))
    submitted: int = 0
    decided: int = 0
    triggers_made: int = 0
    last_pass: float = 0.0

    def alive(self) -> Iterator[NodeRecord]:
        return (node for node in self.nodes.values() if node.state is NodePhase.ALIVE)

    def units(self, slots: tuple[Slot, ...]) -> int:
        return len(slots) // self.unit_slots

    @property
    def capacity(self) -> int:
        """Units of all nodes that are alive."""
        return sum(node.slots // self.unit_slots for node in self.alive())
