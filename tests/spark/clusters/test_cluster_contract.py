"""The contract of cluster managers: each test is written once, and every implementation passes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from beds import Bed, real, simulated, until, written

from penstock.base.errors import BadInputError, ClusterError
from penstock.cluster.contract import (
    AcquisitionState,
    AppRequest,
    AppSession,
    ClusterEventKind,
    NodeRequest,
    NodeState,
    SlotRequest,
)
from penstock.cluster.topology import CPU, MEMORY, Slot
from penstock.spark.clusters.local.lifecycle import running_cluster
from penstock.spark.clusters.local.state import RunningCluster

A, B, C = Slot("n1", 0), Slot("n1", 1), Slot("n2", 0)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A Master and two Workers; both real implementations share them."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(cluster=written(folder), folder=folder / "state") as running:
        yield running


@pytest.fixture(scope="module", params=["simulated", "local", "existing"])
def bed(request: pytest.FixtureRequest) -> Bed:
    if request.param == "simulated":
        return simulated()
    return real(request.getfixturevalue("state"), by_address=request.param == "existing")


@pytest.fixture(scope="module")
def app(bed: Bed) -> Iterator[AppSession]:
    with bed.cluster.session(AppRequest("contract", pinned=True, memory_mb=600)) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_is_left(bed: Bed, app: AppSession) -> Iterator[None]:
    yield
    held = [slot for slot, holder in (bed.cluster.holdings() or {}).items() if holder.application == app.id]
    if held:
        bed.cluster.release(app.id, held)
    until(lambda: not bed.cluster.holdings())


def node(bed: Bed, name: str) -> NodeState:
    states: dict[str, NodeState] = {each.name: each for each in bed.cluster.nodes() or ()}
    return states[name]


def own(bed: Bed, app: AppSession) -> set[Slot]:
    return {slot for slot, holder in (bed.cluster.holdings() or {}).items() if holder.application == app.id}


def test_nodes_have_racks_slots_and_resources(bed: Bed) -> None:
    # a Master lists Workers that have gone for a while
    nodes = [each for each in bed.cluster.nodes() or () if each.alive]
    assert [(each.name, each.rack, each.slots, each.alive) for each in nodes] == [
        ("n1", "left", 2, True),
        ("n2", "right", 1, True),
    ]
    # a slot is 100 points of CPU; memory as the file says
    assert [(each.capacity[CPU], each.capacity[MEMORY]) for each in nodes] == [(200, 1536), (100, 768)]
    assert [(each.free[CPU], each.free[MEMORY]) for each in nodes] == [(200, 1536), (100, 768)]
    assert all(each.host is not None for each in nodes)
    assert bed.cluster.holdings() == {}
    assert bed.cluster.quota() is None


def test_the_planner_gets_a_snapshot(bed: Bed) -> None:
    known = bed.cluster.topology()
    assert known is not None
    assert [(each.name, each.rack, each.slots, each.capacity[MEMORY]) for each in known.nodes[:2]] == [
        ("n1", "left", 2, 1536),
        ("n2", "right", 1, 768),
    ]


def test_an_executor_is_pinned_to_a_slot_and_released(bed: Bed, app: AppSession) -> None:
    acquired = bed.cluster.acquire(app.id, [SlotRequest("n1", 1)])
    assert acquired.result() == (B,)
    until(lambda: own(bed, app) == {B})
    holder = (bed.cluster.holdings() or {})[B]
    assert (holder.application, holder.name, holder.cores, holder.memory_mb) == (app.id, "contract", 1, 600)
    # one of two slots is taken, and 600 MB of 1536; what is left is at most that
    until(lambda: node(bed, "n1").free[CPU] == 100)
    assert 936 - 1 <= (node(bed, "n1").free[MEMORY] or 0) <= 1536
    assert node(bed, "n2").free[CPU] == 100
    bed.cluster.release(app.id, [B])
    until(lambda: not own(bed, app) and node(bed, "n1").free[CPU] == 200)


def test_slots_are_chosen_on_a_node_and_anywhere(bed: Bed, app: AppSession) -> None:
    """On n1 the lowest number; anywhere is what is left."""
    acquired = bed.cluster.acquire(app.id, [SlotRequest(), SlotRequest("n1"), SlotRequest("n2", 0)])
    assert set(acquired.result()) == {A, B, C}
    assert acquired.slots[1:] == (A, C)
    until(lambda: own(bed, app) == {A, B, C})


def test_an_executor_has_the_size_that_was_asked_for(bed: Bed, app: AppSession) -> None:
    bed.cluster.acquire(app.id, [SlotRequest("n1", 0, cores=2, memory_mb=700)]).result()
    until(lambda: own(bed, app) == {A})
    holder = (bed.cluster.holdings() or {})[A]
    assert (holder.cores, holder.memory_mb) == (2, 700)


def test_what_another_application_holds_is_named_and_waited_for(bed: Bed, app: AppSession) -> None:
    before = len(bed.cluster.refusals())
    with bed.other("n2", 0):
        until(lambda: C in (bed.cluster.holdings() or {}))
        holder = (bed.cluster.holdings() or {})[C]
        assert (holder.name, holder.memory_mb) == ("other", 512)
        assert holder.application != app.id
        acquired = bed.cluster.acquire(app.id, [SlotRequest("n1", 0), SlotRequest("n2")], deadline=bed.enough)
        assert not acquired.wait()
        # what came stays
        assert (acquired.state, acquired.slots) == (AcquisitionState.EXPIRED, (A,))
        assert acquired.why.startswith("1 of 2 slots did not come within")
        assert f"n2/0 is held by 'other', {holder.application}" in acquired.why
        with pytest.raises(ClusterError, match="is held by 'other'"):
            acquired.result()
        until(lambda: len(bed.cluster.refusals()) == before + 1)
        assert bed.cluster.refusals()[-1].kind is ClusterEventKind.EXECUTOR_REFUSED
        with pytest.raises(ClusterError, match=r"slot n2/0 is not held by application"):
            bed.cluster.release(app.id, [C])
        waiting = bed.cluster.acquire(app.id, [SlotRequest("n2", 0)])
        assert waiting.state is AcquisitionState.PENDING
    # the other application has ended
    assert waiting.result() == (C,)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (SlotRequest("n9"), "node 'n9' is not in the cluster"),
        (SlotRequest("n2", 1), "slot n2/1: node 'n2' has 1 slots"),
        (SlotRequest("n2", memory_mb=5000), "executor of 5000 MB on n2: a node has 768 MB"),
        (SlotRequest(memory_mb=5000), "executor of 5000 MB on any node: a node has 1536 MB"),
    ],
)
def test_what_can_never_be_had_is_refused_at_once(bed: Bed, app: AppSession, asked: SlotRequest, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        bed.cluster.acquire(app.id, [asked])


def test_applications_of_others_are_not_given_slots(bed: Bed) -> None:
    with pytest.raises(ClusterError, match="application 'app-of-nobody' was not started"):
        bed.cluster.acquire("app-of-nobody", [SlotRequest()])
    with pytest.raises(ClusterError, match="application 'app-of-nobody' was not started"):
        bed.cluster.release("app-of-nobody", [A])


def test_changes_are_watched(bed: Bed, app: AppSession) -> None:
    kind = ClusterEventKind
    watch = bed.cluster.watch()
    seen: list[tuple[ClusterEventKind, str | None]] = []

    def saw(what: ClusterEventKind, where: str) -> bool:
        seen.extend((event.kind, event.node) for event in watch.poll())
        return (what, where) in seen

    assert watch.poll() == []
    bed.cluster.acquire(app.id, [SlotRequest("n1", 0)]).result()
    until(lambda: saw(kind.EXECUTOR_GAINED, "n1"))
    bed.kill("n2")
    until(lambda: saw(kind.NODE_LOST, "n2"))
    assert not node(bed, "n2").alive
    assert node(bed, "n2").free[CPU] == 0
    bed.restore("n2")
    until(lambda: saw(kind.NODE_JOINED, "n2"))
    bed.cluster.release(app.id, [A])
    until(lambda: saw(kind.EXECUTOR_LOST, "n1"))
    assert [each for each in seen if each[1] == "n2"] == [(kind.NODE_LOST, "n2"), (kind.NODE_JOINED, "n2")]
    watch.close()
    assert list(watch) == []


def test_nodes_come_and_go_only_by_a_provider(bed: Bed) -> None:
    if not bed.has_provider:
        with pytest.raises(ClusterError, match="nothing here can add nodes"):
            bed.cluster.add_nodes(NodeRequest())
        with pytest.raises(ClusterError, match="nothing here can remove node 'n1'"):
            bed.cluster.remove_node("n1")
        return
    with pytest.raises(ClusterError, match="have one size, not 'huge'"):
        bed.cluster.add_nodes(NodeRequest(size="huge"))
    (added,) = bed.cluster.add_nodes(NodeRequest())
    until(lambda: node(bed, added.name).alive)
    # like the last one
    assert (node(bed, added.name).slots, node(bed, added.name).rack) == (1, "right")
    bed.cluster.remove_node(added.name)
    assert {each.name for each in bed.cluster.nodes() or ()} == {"n1", "n2"}
