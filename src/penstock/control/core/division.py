"""Who gets which units: a sharing policy over what everybody wants, then the fewest moves. Pure, and repeatable from
the plain document of its inputs that the store keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.cluster.topology import Cluster, Node, Slot
from penstock.control.core.turn import Blamable, BlamedError, Culprit
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Divides, Tenant, Tenants
from penstock.planning.sharing.share import Moves, hand_over, share_in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.control.core.records import NodeRecord


SEPARATOR = "#"
"""Between the name of a node and the number of one of its units, in names of units."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One pipeline's part in a division. Units it holds come first when it is decided which it gets, those it has held
    longest before others: what runs there is warm."""

    name: str
    desired: int
    minimum: int
    priority: int
    waited: float
    fairness: float
    slots: tuple[Slot, ...]
    in_time: int = 0
    """Units with which its tuples are predicted to keep its deadline; 0: it has none, or nobody can say."""


@dataclass(frozen=True, slots=True)
class Division:
    slots: Mapping[str, tuple[Slot, ...]]
    waiting: Mapping[str, str]
    alone: Mapping[str, int] = field(default_factory=dict)
    """What the policy alone would give, where that was rejected."""
    late: tuple[str, ...] = ()
    """Whose deadlines stood against it."""


def document(sharing: str, nodes: Iterable[NodeRecord], unit_slots: int, wishes: Iterable[Wish]) -> dict[str, Any]:
    """All a division depends on, as plain values."""
    return {
        "sharing": sharing,
        "unit_slots": unit_slots,
        "nodes": [
            {"rack": rack, "slots": slots, "capacity": dict(capacity), "names": [node.name for node in alike]}
            for (rack, slots, capacity), alike in groupby(nodes, _kind)
        ],
        "pipelines": [
            {
                **{named.name: getattr(wish, named.name) for named in fields(wish)},
                "slots": [list(slot) for slot in wish.slots],
            }
            for wish in wishes
        ],
    }


def _kind(node: NodeRecord) -> tuple[str, int, tuple[tuple[str, float], ...]]:
    """What nodes have in common that are written down together."""
    return node.rack, node.slots, tuple(node.capacity.items())


def divide(inputs: Mapping[str, Any]) -> Division:
    """From the document of the inputs alone: what a pass decides now is what anybody finds who repeats it."""
    wishes = [
        Wish(**{**entry, "slots": tuple(Slot(node, number) for node, number in entry["slots"])})
        for entry in inputs["pipelines"]
    ]
    unit_slots = inputs["unit_slots"]
    if not wishes:
        return Division({}, {})
    if not inputs["nodes"]:
        return Division({wish.name: () for wish in wishes}, {wish.name: "no node is alive" for wish in wishes})
    cluster = units_of(
        tuple(
            (group["rack"], group["slots"], tuple(group["capacity"].items()), tuple(group["names"]))
            for group in inputs["nodes"]
        ),
        unit_slots,
    )
    current = units_held(wishes, unit_slots, cluster)
    tenants = Tenants.of(
        cluster,
        [
            Tenant(
                name=wish.name,
                desired=wish.desired,
                minimum=wish.minimum,
                priority=wish.priority,
                # what runs on a unit is for its engine to say: here nothing is dealt to single slots
                threads=1,
                waited=wish.waited,
                fairness=wish.fairness,
                in_time=wish.in_time,
                current=current[wish.name],
            )
            for wish in wishes
        ],
        unit_slots,
    )
    sharer = SHARERS.create(inputs["sharing"])
    made = share_in_time(sharer, tenants)
    shares, waiting = made.shares, dict(made.shares.waiting)
    alone = {} if made.rejected is None else {name: int(units) for name, units in made.rejected.nodes.items()}
    if sharer.divides is Divides.SLOTS:
        counts = {name: len(slots) for name, slots in shares.slots.items()}
        return Division(_kept_slots(tenants, counts, wishes, unit_slots), waiting, alone, made.late)
    handed = hand_over(tenants, shares.nodes, sharer, Moves.FEWEST, shares.takers)
    return Division(
        {name: slots_of(holding.nodes, unit_slots) for name, holding in handed.holdings.items()},
        {**waiting, **handed.waiting},
        alone,
        made.late,
    )


@lru_cache(maxsize=4)
def units_of(
    nodes: tuple[tuple[str, int, tuple[tuple[str, float], ...], tuple[str, ...]], ...], unit_slots: int
) -> Cluster:
    """Nodes as units of `unit_slots` slots, each with its part of its node's capacity. Remembered: nodes change rarely
    and there may be thousands."""
    units = []
    for rack, slots, capacity, names in nodes:
        count = slots // unit_slots
        part = {resource: amount / count for resource, amount in capacity} if count else {}
        units += [
            Node(f"{name}{SEPARATOR}{number}", rack, unit_slots, part) for name in names for number in range(count)
        ]
    return Cluster(tuple(units))


def slots_of(units: Sequence[str], unit_slots: int) -> tuple[Slot, ...]:
    slots = []
    for unit in units:
        node, _, number = unit.rpartition(SEPARATOR)
        slots += [Slot(node, int(number) * unit_slots + offset) for offset in range(unit_slots)]
    return tuple(slots)


def units_held(wishes: Iterable[Wish], unit_slots: int, cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """By pipeline the units its slots belong to, in the order of the slots, as far as the cluster has them. A policy
    that divides slots lets several have slots of one unit: it counts as held by the one with the most of them, the
    first of those with as many."""
    holders: dict[str, tuple[int, str]] = {}
    counts = {
        wish.name: Counter(f"{slot.node}{SEPARATOR}{slot.number // unit_slots}" for slot in wish.slots)
        for wish in wishes
    }
    for name, units in counts.items():
        for unit, slots in units.items():
            if slots > holders.get(unit, (0, ""))[0]:
                holders[unit] = (slots, name)
    return {
        name: tuple(unit for unit in units if holders[unit][1] == name and cluster.find(unit) is not None)
        for name, units in counts.items()
    }


def _kept_slots(
    tenants: Tenants, counts: Mapping[str, int], wishes: Sequence[Wish], unit_slots: int
) -> dict[str, tuple[Slot, ...]]:
    """For a policy that counts slots wherever they are: everybody keeps what it has up to its count, and takes the rest
    from the node with the most free, one by one."""
    free: dict[str, set[int]] = {}
    for slot in slots_of([node.name for node in tenants.cluster.nodes], unit_slots):
        free.setdefault(slot.node, set()).add(slot.number)
    kept: dict[str, list[Slot]] = {}
    for wish in wishes:
        kept[wish.name] = [slot for slot in wish.slots if slot.number in free.get(slot.node, ())][: counts[wish.name]]
        for slot in kept[wish.name]:
            free[slot.node].discard(slot.number)
    # the node with the most free slots is first; of several, the first of the cluster
    order = {node: position for position, node in enumerate(free)}
    most_free = [(-len(numbers), order[node], node) for node, numbers in free.items() if numbers]
    heapify(most_free)
    ascending = {node: iter(sorted(numbers)) for node, numbers in free.items()}
    for wish in wishes:
        for _ in range(counts[wish.name] - len(kept[wish.name])):
            count, position, node = most_free[0]
            kept[wish.name].append(Slot(node, next(ascending[node])))
            if count == -1:
                heappop(most_free)
            else:
                heapreplace(most_free, (count + 1, position, node))
    return {name: tuple(slots) for name, slots in kept.items()}


# The culprit of a division that raises: the policy, a node, or a pipeline.


PLAIN_WISH = asdict(Wish("a plain pipeline", desired=1, minimum=1, priority=1, waited=0.0, fairness=1.0, slots=()))
"""A pipeline that no policy should reject."""


def blamed_division(inputs: Mapping[str, Any]) -> Division:
    try:
        return divide(inputs)
    except Exception as error:
        raise BlamedError(_culprit(inputs), error) from error


def _culprit(inputs: Mapping[str, Any]) -> Culprit:
    nodes = [{**group, "names": [name]} for group in inputs["nodes"] for name in group["names"]]
    if _raises({**inputs, "pipelines": [PLAIN_WISH]}):
        count = _shortest(len(nodes), lambda count: {**inputs, "nodes": nodes[:count], "pipelines": [PLAIN_WISH]})
        others = [*nodes[: count - 1], *nodes[count:]]
        if count == 1 and (not others or _raises({**inputs, "nodes": others[:1], "pipelines": [PLAIN_WISH]})):
            return Culprit(Blamable.POLICY, inputs["sharing"])
        return Culprit(Blamable.NODE, nodes[count - 1]["names"][0])
    pipelines: Sequence[Mapping[str, Any]] = inputs["pipelines"]
    count = _shortest(len(pipelines), lambda count: {**inputs, "pipelines": pipelines[:count]})
    return Culprit(Blamable.PIPELINE, pipelines[count - 1]["name"])


def _shortest(count: int, inputs_with: Callable[[int], Mapping[str, Any]]) -> int:
    """Find by bisection the smallest n for which the first n raise. Requires: the first 0 do not raise, all do."""
    fine, raising = 0, count
    while raising - fine > 1:
        middle = (fine + raising) // 2
        fine, raising = (fine, middle) if _raises(inputs_with(middle)) else (middle, raising)
    return raising


def _raises(inputs: Mapping[str, Any]) -> bool:
    try:
        divide(inputs)
    except Exception:  # whatever it is: it is only asked whether
        return True
    return False
