"""What the page shows: figures worked out by hand, and questions that change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from service_builders import READER, Served, serve

from penstock.control.metrics import Metric
from penstock.inputs.finders import builtin_pipeline
from penstock.service.pages.charts import drawn, layers_of, predicted
from penstock.service.pages.page_list import ASSETS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Six slots; `a` needs 2 for 20 tuples/s, `b` wants more than is left."""
    found = serve(tmp_path, nodes=6)
    submit: dict[str, dict[str, Any]] = {
        "a": {"target": {"rate": 20.0}},
        "b": {"target": {"rate": 90.0}, "priority": 3},
    }
    for name, more in submit.items():
        found.call("POST", "/v1/pipelines", {"name": name, "pipeline": "linear", **more}, 201)
    found.run(60)
    yield found
    found.close()


def view(served: Served, path: str) -> Any:
    answer = served.http.get(f"/v1/views/{path}", headers=READER)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_assets_are_small_and_load_nothing_from_elsewhere() -> None:
    files = list(ASSETS.iterdir())
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert (ASSETS / "uPlot-LICENSE.txt").read_text("utf-8").startswith("The MIT License")
    for path in files:
        text = path.read_text("utf-8")
        if path.name not in {"uPlot.js", "uPlot-LICENSE.txt"}:
            assert "//cdn" not in text
            assert text.count("http") == text.count("http://www.w3.org/2000/svg"), path.name
        assert "innerHTML" not in text or path.name == "uPlot.js", path.name


def test_operators_stand_in_layers() -> None:
    """diamond: source -> X, F, B, T -> P -> sink."""
    diamond = builtin_pipeline("diamond")
    assert [sorted(names) for names in layers_of(diamond)] == [["source"], ["B", "F", "T", "X"], ["P"], ["sink"]]
    places = {operator["name"]: (operator["x"], operator["y"]) for operator in drawn(diamond)["operators"]}
    assert places["P"] == (2, 0.5)
    assert {places[name][1] for name in "XFBT"} == {0.125, 0.375, 0.625, 0.875}


def test_prediction_follows_what_arrived_and_what_was_held() -> None:
    """Capacity 10/s a unit. Window 1: 15/s arrive on 1 unit: 10/s done, 50 wait. Window 2: 15/s on 2 units: the 150
    that arrive and the 50 are done, 20/s. Window 3: nothing is known of what arrived."""
    columns: dict[str, list[float | None]] = {str(metric): [None] * 3 for metric in Metric}
    columns[Metric.OFFERED_RATE] = [15.0, 15.0, None]
    columns[Metric.HELD] = [1.0, 2.0, 2.0]
    found = predicted([10.0, 20.0, 30.0], columns, lambda units: 10.0 * units, lambda rate: (rate / 10, 7.0))
    assert found[Metric.RATE] == [10.0, 20.0, None]
    assert found[Metric.BACKLOG] == [50.0, 0.0, None]
    assert found[Metric.BUSY] == [1.0, 1.0, None]
    assert found[Metric.CPU] == [1.0, 2.0, None]
    # the last of the 50 waits 50 / 10 s
    assert found[Metric.LATENCY_MS] == [5050.0, 50.0, None]


def test_fleet_cluster_and_decisions_agree(served: Served) -> None:
    fleet = view(served, "fleet")
    rows = {row["name"]: row for row in fleet["pipelines"]}
    assert rows["a"]["meets"] is True
    assert rows["b"]["meets"] is False
    assert rows["b"]["lag_s"] > 0
    held = {name: row["held"] for name, row in rows.items()}
    assert held == served.held()
    (first, *_) = (node for rack in view(served, "cluster")["racks"] for node in rack["nodes"])
    assert first["resources"]["cpu"]["capacity"] == first["capacity"]["cpu"]
    slots = [slot for rack in view(served, "cluster")["racks"] for node in rack["nodes"] for slot in node["slots"]]
    shown = [slot["pipeline"] for slot in slots if slot is not None and slot["held"]]
    assert {name: shown.count(name) for name in held} == held
    starts = view(served, "decisions?kind=start&pipeline=a")["decisions"]
    assert [decision["to"] for decision in starts] == [held["a"]]
    assert starts[0]["did"]["held"] == held["a"]
    assert starts[0]["did"]["rate"] == pytest.approx(20, rel=0.1)


def test_one_pipeline(served: Served) -> None:
    found = view(served, "pipeline?name=a")
    assert {operator["name"] for operator in found["graph"]["operators"]} == set(found["operators"])
    busy = {name: operator.get("busy") for name, operator in found["operators"].items()}
    assert 0 < busy["B"] <= 1
    # what its executors measure, not what the models say
    assert found["operators"]["B"]["measured"]
    reported = served.controller.statistics.operators(served.controller.state.pipelines["a"])["B"]
    assert found["operators"]["B"]["rate"] == reported[Metric.RATE_IN]
    assert len(found["seats"]["slots"]) == served.held()["a"]
    series = view(served, "series?name=a")
    measured, modelled = series["measured"]["rate"], series["predicted"]["rate"]
    assert measured[-1] == pytest.approx(20, rel=0.05)
    assert modelled[-1] == pytest.approx(20, rel=0.05)
    assert {change["kind"] for change in series["changes"]} >= {"start", "state"}


class TestWhatIf:
    def test_a_priority_takes_units_from_others_and_nothing_is_changed(self, served: Served) -> None:
        before = (served.held(), served.controller.state, served.call("GET", "/v1/decisions"))
        found = view(served, "what-if?pipeline=b&priority=1&seconds=60")
        ends = {row["name"]: (row["before"]["held"], row["after"]["held"]) for row in found["pipelines"]}
        assert ends["b"][1] > ends["b"][0]
        assert ends["a"][1] <= ends["a"][0]
        assert found["decisions"]
        assert (served.held(), served.controller.state, served.call("GET", "/v1/decisions")) == before

    def test_more_nodes_work_the_backlog_off(self, served: Served) -> None:
        found = view(served, "what-if?pipeline=b&nodes=40&seconds=300")
        assert found["nodes"] == {"before": 6, "after": 40}
        assert found["series"]["before"]["backlog"][-1] > 0
        # it is sized for its target: what waits is done with what is to spare, or stays; nothing is added to it
        assert found["series"]["after"]["backlog"][-1] < found["series"]["before"]["backlog"][-1]
        assert found["plan"]["refused"] is None
        submission = served.controller.state.pipelines["b"].submission
        assert found["plan"]["slots"] == served.controller.sizing.units_for(submission, 90.0)

    def test_what_the_controller_would_refuse_is_refused(self, served: Served) -> None:
        served.call("PUT", "/v1/policy", {"sharing": "static-priority"}, 200)
        assert served.http.get("/v1/views/what-if?pipeline=b&priority=1").status_code == 409

    @pytest.mark.parametrize(
        "words", ["rate=-1", "rate=x", "nodes=0", "policy=none-such", "seconds=1e9", "priority=1.5"]
    )
    def test_wrong_words_are_named(self, served: Served, words: str) -> None:
        answer = served.http.get(f"/v1/views/what-if?pipeline=b&{words}")
        assert answer.status_code == 400
        assert answer.json()["field"] == words.partition("=")[0]
