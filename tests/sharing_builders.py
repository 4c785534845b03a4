"""Short ways to say who shares a cluster, and random ones for the property tests."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from penstock.cluster.topology import CPU, MEMORY, Cluster, Dimension, Node
from penstock.planning.sharing.contract import Tenant, Tenants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GPU = "gpu"
DIMENSIONS = tuple(Dimension(name, hard=True, weight=0.0) for name in (CPU, MEMORY, GPU))


def tenants(nodes: int, *pipelines: tuple[int, int, int], slots: int = 2) -> Tenants:
    """Pipelines p0, p1, ... as (desired, minimum, priority)."""
    return Tenants.of(
        nodes,
        [
            Tenant(f"p{number}", desired, minimum, priority)
            for number, (desired, minimum, priority) in enumerate(pipelines)
        ],
        slots,
    )


def sized_nodes(*slots: int) -> Cluster:
    """Nodes n1, n2, ... with so many slots, and cpu, memory and gpus in proportion."""
    return Cluster(
        tuple(
            Node(f"n{number}", "r1", count, MappingProxyType({CPU: 100.0 * count, MEMORY: 4096.0 * count, GPU: count}))
            for number, count in enumerate(slots, 1)
        ),
        DIMENSIONS,
    )


@st.composite
def pipelines(draw: Callable[..., Any], most: int = 8) -> list[Tenant]:
    found = []
    for number in range(draw(st.integers(1, most))):
        desired = draw(st.integers(1, 20))
        found.append(
            Tenant(
                f"p{number}",
                desired,
                draw(st.integers(1, desired)),
                draw(st.integers(1, 5)),
                workers=draw(st.none() | st.integers(1, 40)),
                waited=draw(st.sampled_from([0.0, 0.0, 500.0, 900.0, 3000.0])),
                fairness=draw(st.sampled_from([0.0, 0.3, 1.0])),
            )
        )
    return found


@st.composite
def demands(draw: Callable[..., Any]) -> MappingProxyType[str, float]:
    """Demand of one unit: at least one resource above 0."""
    amounts = {
        CPU: draw(st.sampled_from([0.0, 50.0, 100.0, 400.0])),
        MEMORY: draw(st.sampled_from([0.0, 512.0, 4096.0, 20000.0])),
        GPU: draw(st.sampled_from([0.0, 0.0, 1.0])),
    }
    if not any(amounts.values()):
        amounts[CPU] = 100.0
    return MappingProxyType(amounts)


@st.composite
def tenancies(draw: Callable[..., Any], *, resources: bool = True) -> Tenants:
    """Up to eight pipelines on up to sixty equal nodes; some say what one node's worth of them demands."""
    everyone = draw(pipelines())
    if resources and draw(st.booleans()):
        everyone = [replace(tenant, resources=draw(st.none() | demands())) for tenant in everyone]
    slots = draw(st.integers(1, 4))
    return Tenants.of(sized_nodes(*[slots] * draw(st.integers(1, 60))), everyone, slots)


@st.composite
def unequal_tenancies(draw: Callable[..., Any]) -> Tenants:
    """Nodes of one to eight standard nodes' size; some are held already."""
    sizes: Sequence[int] = draw(st.lists(st.sampled_from([1, 1, 2, 3, 4, 8]), min_size=1, max_size=20))
    slots = draw(st.integers(1, 2))
    return with_current(draw, Tenants.of(sized_nodes(*[slots * size for size in sizes]), draw(pipelines()), slots))


@st.composite
def running_tenancies(draw: Callable[..., Any]) -> Tenants:
    """Equal nodes, some held already."""
    found = draw(tenancies(resources=False))
    return with_current(draw, found)


def with_current(draw: Callable[..., Any], found: Tenants) -> Tenants:
    """Every node is free or held by one pipeline; some hold a node that is no longer there."""
    holders = draw(
        st.lists(
            st.integers(-1, len(found.pipelines) - 1),
            min_size=len(found.cluster.nodes),
            max_size=len(found.cluster.nodes),
        )
    )
    everyone = []
    for position, tenant in enumerate(found.pipelines):
        current = [node.name for node, holder in zip(found.cluster.nodes, holders, strict=True) if holder == position]
        if draw(st.integers(0, 5)) == 0:
            current.append(f"gone-{position}")
        everyone.append(replace(tenant, current=tuple(current), threads=draw(st.none() | st.integers(1, 30))))
    return replace(found, pipelines=tuple(everyone))
