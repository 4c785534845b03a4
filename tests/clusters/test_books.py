"""Arithmetic on the answers of a cluster manager, with the sums shown."""

from __future__ import annotations

import pytest

from penstock.base.errors import BadInputError
from penstock.cluster.books import amounts_left, changes, choose_slots, free_slots, slots_left, topology_of
from penstock.cluster.contract import (
    CLUSTERS,
    AppRequest,
    ClusterEventKind,
    ClusterManager,
    Holder,
    NodeState,
    Purpose,
    SlotRequest,
    open_cluster,
)
from penstock.cluster.simulated import SimulatedCluster
from penstock.cluster.topology import CPU, MEMORY, Distance, Node, Slot

K = ClusterEventKind
ONE, TWO = Holder("app-1", "one", memory_mb=600), Holder("app-2", "two", memory_mb=700)


def state(name: str, slots: int | None = 2, free_mb: float | None = 2000, *, alive: bool = True) -> NodeState:
    return NodeState(name, alive, slots=slots, capacity={CPU: 200, MEMORY: 2000}, free={CPU: 200, MEMORY: free_mb})


def slot(text: str) -> Slot:
    node, _, number = text.partition("/")
    return Slot(node, int(number))


@pytest.mark.parametrize(
    ("requests", "held", "chosen"),
    [
        # the lowest number that is free
        ([SlotRequest("n1")], ["n1/0"], ["n1/1"]),
        # a named slot comes before one that may be any: the second request leaves n1/0 to the first
        ([SlotRequest("n1"), SlotRequest("n1", 0)], [], ["n1/1", "n1/0"]),
        # anywhere: n2 has two free, n1 one; then both have one, and n1 is first
        ([SlotRequest(), SlotRequest()], ["n1/0"], ["n2/0", "n1/1"]),
        # what is held is not given
        ([SlotRequest("n1", 0)], ["n1/0"], [None]),
        # 2000 MB: 1500 fit once on each node, a third time on none
        ([SlotRequest(memory_mb=1500)] * 3, [], ["n1/0", "n2/0", None]),
    ],
)
def test_slots_are_chosen(requests: list[SlotRequest], held: list[str], chosen: list[str | None]) -> None:
    found = choose_slots(requests, [state("n1"), state("n2")], [slot(each) for each in held])
    assert [None if each is None else str(each) for each in found] == chosen


def test_nodes_that_are_not_alive_or_not_numbered_have_no_free_slots() -> None:
    nodes = [state("n1"), state("n2", alive=False), state("n3", None)]
    assert free_slots(nodes, [slot("n1/0")]) == {"n1": (1,), "n2": (), "n3": ()}
    assert choose_slots([SlotRequest("n2"), SlotRequest("n3")], nodes, []) == [None, None]


def test_amounts_left() -> None:
    """Two of four slots: 400 x 2/4 points. 3000 - 600 - 700 MB. Nobody holds a custom resource."""
    node = Node("n1", "r1", 4, {CPU: 400, MEMORY: 3000, "gpu": 2})
    assert dict(amounts_left(node, [ONE, TWO])) == {CPU: 200, MEMORY: 1700, "gpu": 2}
    assert amounts_left(node, [Holder("app", memory_mb=9000)])[MEMORY] == 0


def test_slots_left_by_the_cpu_the_manager_counts() -> None:
    assert slots_left(NodeState("n", slots=4, capacity={CPU: 400}, free={CPU: 300})) == 3
    assert slots_left(NodeState("n", slots=4, capacity={CPU: 400}, free={CPU: None})) is None
    assert slots_left(state("n", None)) is None


@pytest.mark.parametrize(
    ("before", "after", "held", "holds", "expected"),
    [
        ([state("a")], [state("a")], {}, {}, []),
        ([state("a")], [state("a", alive=False)], {}, {}, [(K.NODE_LOST, "a")]),
        ([state("a")], [], {}, {}, [(K.NODE_LOST, "a")]),
        ([state("a", alive=False)], [state("a")], {}, {}, [(K.NODE_JOINED, "a")]),
        ([], [state("a", alive=False)], {}, {}, []),
        ([state("a")], [state("a", 3)], {}, {}, [(K.NODE_RESIZED, "a")]),
        ([], [], {}, {slot("a/0"): ONE}, [(K.EXECUTOR_GAINED, "a")]),
        ([], [], {slot("a/0"): ONE}, {}, [(K.EXECUTOR_LOST, "a")]),
        # another application has it now
        ([], [], {slot("a/0"): ONE}, {slot("a/0"): TWO}, [(K.EXECUTOR_LOST, "a"), (K.EXECUTOR_GAINED, "a")]),
    ],
)
def test_changes(
    before: list[NodeState],
    after: list[NodeState],
    held: dict[Slot, Holder],
    holds: dict[Slot, Holder],
    expected: list[tuple[ClusterEventKind, str]],
) -> None:
    found = changes((before, after), (held, holds))
    assert [(event.kind, event.node) for event in found] == expected


def test_a_node_whose_rack_is_not_known_is_far_from_every_other() -> None:
    known = topology_of([state("a"), state("b")])
    assert known is not None
    assert known.distance(slot("a/0"), slot("b/0")) is Distance.OTHER_RACK
    assert topology_of([state("a"), state("b", None)]) is None


def test_a_silent_manager_is_told_once_and_what_it_missed_afterwards() -> None:
    class Silent(SimulatedCluster):
        answers = True

        def nodes(self):  # type: ignore[no-untyped-def]
            return super().nodes() if self.answers else None

    cluster = Silent()
    watch = cluster.watch()
    cluster.answers = False
    cluster.lose_node("n2")
    assert [[event.kind for event in watch.poll()] for _ in range(2)] == [[K.SILENT], []]
    cluster.answers = True
    assert [event.kind for event in watch.poll()] == [K.BACK, K.NODE_LOST]


def test_watching_blocks_until_something_happens_and_ends_with_close() -> None:
    cluster = SimulatedCluster()
    watch = cluster.watch(every=0.01)
    cluster.lose_node("n1")
    for event in watch:
        assert (event.kind, event.node) == (K.NODE_LOST, "n1")
        watch.close()


def test_an_application_starts_with_executors_anywhere() -> None:
    cluster = SimulatedCluster()
    with cluster.session(AppRequest("many", Purpose.FUSED, executors=3)) as app:
        assert {holder.application for holder in cluster.holdings().values()} == {app.id}
        assert len(cluster.holdings()) == 3
    assert cluster.holdings() == {}


@pytest.mark.parametrize("asked", [{"number": 1}, {"cores": 0}, {"memory_mb": 0}])
def test_requests_without_sense(asked: dict[str, int]) -> None:
    with pytest.raises(BadInputError):
        SlotRequest(**asked)  # type: ignore[arg-type]


def test_clusters_are_found_by_the_scheme_of_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_cluster("simulated").master == "simulated"
    yarn = open_cluster("yarn")
    # a manager that is not read: unknown, not empty
    assert (yarn.nodes(), yarn.holdings(), yarn.topology(), yarn.quota(), yarn.pins) == (None, None, None, None, False)
    with pytest.raises(BadInputError, match=r"^master 'nomad://h:1': expected local\[N\], spark://HOST:PORT"):
        open_cluster("nomad://h:1")

    class Entry:
        name, value = "nomad", f"{__name__}:opens"

    monkeypatch.setattr(
        "penstock.base.registry.metadata.entry_points",
        lambda group: [Entry] if group == "penstock.clusters" else [],
    )
    monkeypatch.delitem(CLUSTERS.__dict__, "_addresses", raising=False)
    try:
        assert isinstance(open_cluster("nomad://h:1"), SimulatedCluster)
    finally:
        CLUSTERS.__dict__.pop("_addresses", None)


def opens(_: object) -> ClusterManager:
    return SimulatedCluster()
