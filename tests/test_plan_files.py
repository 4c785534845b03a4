"""Plans in files: what is written is read back, what was tampered with is refused; and what moves between two."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.base import former_names
from penstock.base.errors import BadInputError
from penstock.base.files import check
from penstock.cluster.topology import Slot
from penstock.planning.files import SavedPlan, parse_plan, read_plan, write_plan
from penstock.planning.replanning.plan_changes import diff

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Placed = dict[tuple[str, int], dict[str, int]]


@pytest.mark.parametrize("pipeline", ["linear", "diamond", "star"])
def test_round_trip(tmp_path: Path, pipeline: str) -> None:
    plan = penstock.plan(pipeline, 100)
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    saved = read_plan(path)
    assert json.loads(path.read_text("utf-8")) == plan.document()
    assert saved.threads_by_slot() == plan.placement.by_slot()
    assert saved.rate == 100
    assert saved.slots.placed == plan.slots_asked
    assert [node.name for node in saved.nodes] == [node.name for node in plan.cluster.nodes]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return penstock.plan("linear", 50).document()


def set_to(*keys: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


def drop(key: str) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        del data[key]

    return change


def repeat(key: str) -> Callable[[dict[str, Any]], None]:
    """The first entry of a list once more."""

    def change(data: dict[str, Any]) -> None:
        data[key].append(data[key][0])

    return change


def split_first_slot(data: dict[str, Any]) -> None:
    """The same threads, but one slot stands in two rows."""
    row = next(row for row in data["placement"] if sum(row["threads"].values()) > 1)
    name = next(iter(row["threads"]))
    row["threads"][name] -= 1
    if not row["threads"][name]:
        del row["threads"][name]
    data["placement"].append({"node": row["node"], "slot": row["slot"], "threads": {name: 1}})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (set_to("rate", value=0), "rate: .*greater than 0, found 0"),
        (set_to("rate", value=-5), "rate: .*greater than 0, found -5"),
        (set_to("rate", value="50"), "rate: .*valid number, found '50'"),
        (drop("operators"), "operators: Field required"),
        (drop("definition"), "definition: Field required"),
        (set_to("operator", value={}), "unknown key 'operator'; did you mean 'operators'"),
        (set_to("operators", "X", "threads", value=0), "operators.X.threads: .*equal to 1, found 0"),
        (set_to("operators", "X", "threads", value=3), "operator 'X' has 3 threads, 1 are placed"),
        (set_to("operators", "X", "cpu", value=-1), "operators.X.cpu: .*or equal to 0, found -1"),
        (
            set_to("operators", "Y", value={"rate": 1, "threads": 1, "cpu": 0, "memory": 0}),
            "operator 'Y' has 1 threads, 0 are placed",
        ),
        (set_to("placement", 0, "node", value="n9"), r"placement\[0\].node: unknown node 'n9'; known: n1"),
        (set_to("placement", 0, "slot", value=99), r"placement\[0\].slot: node 'n1' has slots 0 to \d, found 99"),
        (set_to("placement", 0, "slot", value=-1), r"placement\[0\].slot: .*found -1"),
        (set_to("placement", 0, "slot", value="0"), r"placement\[0\].slot: .*valid integer"),
        (set_to("placement", 0, "threads", value={"Z": 1}), r"placement\[0\].threads: unknown operator 'Z'"),
        (set_to("placement", 0, "threads", value={"X": 0}), r"placement\[0\].threads.X: .*or equal to 1, found 0"),
        (set_to("placement", value=[]), "operator 'source' has 1 threads, 0 are placed"),
        (set_to("nodes", 0, "slots", value=0), r"nodes\[0\].slots: .*or equal to 1, found 0"),
        (set_to("slots", "placed", value=-3), "slots.placed: .*or equal to 0, found -3"),
        (set_to("slots", "placed", value="4"), "slots.placed: .*valid integer"),
        (repeat("nodes"), r"nodes\[\d\].name: node 'n1' is listed twice"),
        (split_first_slot, r"placement\[\d\]: slot \d of node 'n1' is listed twice"),
    ],
)
def test_tampered_files(
    tmp_path: Path, document: dict[str, Any], change: Callable[[dict[str, Any]], None], complaint: str
) -> None:
    tampered = copy.deepcopy(document)
    change(tampered)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(tampered))
    with pytest.raises(BadInputError, match=complaint) as caught:
        read_plan(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_plan_that_is_not_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("[]")
    with pytest.raises(BadInputError, match="expected a mapping with the keys of a savedplan, found list"):
        read_plan(path)


# ------------------------------------------------------------------------------------------------- diff


def saved(placed: Placed, nodes: dict[str, int]) -> SavedPlan:
    """A plan file of that placement."""
    names = dict.fromkeys(name for row in placed.values() for name in row)
    threads = {name: sum(row.get(name, 0) for row in placed.values()) for name in names}
    slots = {"allocated": 1, "allocated_with_ends": 1, "placed": len(placed), "acquired": 4, "used": len(placed)}
    data = {
        "pipeline": "p",
        "rate": 10,
        "allocator": "mba",
        "placer": "sam",
        "operators": {name: {"rate": 1, "threads": count, "cpu": 0, "memory": 0} for name, count in threads.items()},
        "slots": slots,
        "nodes": [{"name": name, "rack": "r1", "slots": count} for name, count in nodes.items()],
        "placement": [{"node": n, "slot": s, "threads": row} for (n, s), row in placed.items()],
        "prediction": {},
        "bounds": {},
        "definition": {},
    }
    return check(SavedPlan, data, "plan.json")


BEFORE: Placed = {("n1", 0): {"A": 3, "B": 1}, ("n1", 1): {"A": 1}}


@pytest.mark.parametrize(
    ("after", "kept", "moved"),
    [
        # nothing changes: A 3 + 1, B 1 stay
        pytest.param(BEFORE, {"A": 4, "B": 1}, {"A": 0, "B": 0}, id="same"),
        # A: min(3, 1) + min(1, 3) = 2 of 4 stay
        pytest.param(
            {("n1", 0): {"A": 1, "B": 1}, ("n1", 1): {"A": 3}}, {"A": 2, "B": 1}, {"A": 2, "B": 0}, id="shifted"
        ),
        # A grows from 4 to 6: all 4 stay, 2 start, none moves
        pytest.param(
            {("n1", 0): {"A": 3, "B": 1}, ("n1", 1): {"A": 3}}, {"A": 4, "B": 1}, {"A": 0, "B": 0}, id="grown"
        ),
        # A shrinks from 4 to 2, on the second slot: min(1, 2) = 1 stays, and of the 2 that go on 1 has to move
        pytest.param({("n1", 0): {"B": 1}, ("n1", 1): {"A": 2}}, {"A": 1, "B": 1}, {"A": 1, "B": 0}, id="shrunk"),
        # everything on another node: nothing stays
        pytest.param({("n2", 0): {"A": 4, "B": 1}}, {"A": 0, "B": 0}, {"A": 4, "B": 1}, id="elsewhere"),
        # B is gone and C is new: neither moves
        pytest.param(
            {("n1", 0): {"A": 3}, ("n1", 1): {"A": 1, "C": 2}},
            {"A": 4, "B": 0, "C": 0},
            {"A": 0, "B": 0, "C": 0},
            id="other operators",
        ),
    ],
)
def test_threads_kept_and_moved(after: Placed, kept: dict[str, int], moved: dict[str, int]) -> None:
    nodes = {"n1": 2, "n2": 2}
    found = diff(saved(BEFORE, nodes), saved(after, nodes))
    assert {change.operator: change.kept for change in found.operators} == kept
    assert {change.operator: change.moved for change in found.operators} == moved
    assert found.threads_moved == sum(moved.values())


def test_slots_and_nodes_that_change() -> None:
    # n1 keeps its name but doubles its slots: it is another machine; n2 goes, n3 comes
    after: Placed = {("n1", 0): {"A": 3, "B": 2}, ("n3", 0): {"A": 1}}
    found = diff(saved(BEFORE, {"n1": 2, "n2": 2}), saved(after, {"n1": 4, "n3": 2}))
    assert {change.slot: dict(change.change) for change in found.slots} == {
        Slot("n1", 0): {"B": 1},
        Slot("n1", 1): {"A": -1},
        Slot("n3", 0): {"A": 1},
    }
    assert found.nodes_added == ("n1", "n3")
    assert found.nodes_removed == ("n1", "n2")
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    # nothing stays on a machine that is replaced: 4 of A and 1 of B move, and 1 of B starts
    assert document["threads_moved"] == 5
    assert document["operators"]["A"] == {"before": 4, "after": 4, "kept": 0, "moved": 4}


def test_diff_of_files(tmp_path: Path) -> None:
    for name, rate in (("a.json", 50), ("b.json", 100)):
        write_plan(penstock.plan("linear", rate), tmp_path / name)
    assert penstock.diff(tmp_path / "a.json", tmp_path / "a.json").threads_moved == 0
    found = penstock.diff(tmp_path / "a.json", tmp_path / "b.json")
    assert (found.before.rate, found.after.rate) == (50, 100)
    assert all(change.after >= change.before for change in found.operators)


def test_a_plan_of_0_1_says_load_for_utilisation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_names, "_reported", set())
    document = penstock.plan("linear", 80, utilisation=0.8).document()
    former = {"load" if key == "utilisation" else key: value for key, value in document.items()}
    with pytest.warns(FutureWarning, match="'load' is now 'utilisation'"):
        assert parse_plan(json.loads(json.dumps(former)), "plan").utilisation == 0.8
    both = {**json.loads(json.dumps(document)), "load": 0.8}
    with pytest.raises(BadInputError, match=r"plan: .*two names of one option; keep 'utilisation'"):
        parse_plan(both, "plan")
