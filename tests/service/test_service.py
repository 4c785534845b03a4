"""The controller over HTTP: the documented allocations, every verb, what is refused and how, who may ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from service_builders import READER, Served, serve

from penstock.base.clock import Stopwatch
from penstock.cluster.topology import Cluster, Node
from penstock.control.core.messages import PartReading, Readings
from penstock.control.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

USE_CASE_1 = [("EventTP1", 8, 4, 1), ("EventTP2", 8, 4, 1), ("ArchivalTP1", 4, 2, 2), ("ArchivalTP2", 4, 2, 2)]
USE_CASE_2 = [("TP1", 16, 8, 1), ("TP2", 8, 4, 2)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = serve(tmp_path)
    yield found
    found.close()


def published(folder: Path, nodes: int, sharing: str, cases: list[tuple[str, int, int, int]]) -> Served:
    """The use cases of the publication, submitted over HTTP; with dynamic-priority all start at the default level."""
    served = serve(folder, nodes)
    served.call("PUT", "/v1/policy", {"sharing": sharing}, 200)
    for name, desired, minimum, level in cases:
        body: dict[str, Any] = {"name": name, "pipeline": "linear", "desired": desired, "minimum": minimum, "load": "5"}
        if sharing == "static-priority":
            body["priority"] = level
        served.call("POST", "/v1/pipelines", body, 201)
    served.run(20)
    return served


def trigger(served: Served, name: str) -> str:
    found = served.call("POST", f"/v1/pipelines/{name}/triggers", {"kind": "arrival-rate", "above": 1e6}, 201)
    return f"/v1/pipelines/{name}/triggers/{found['id']}"


class TestFairness:
    def test_of_every_pipeline_and_of_all_so_far_and_over_time(self, tmp_path: Path) -> None:
        served = serve(tmp_path, 6)
        assert served.call("GET", "/v1/fairness", None, 200)["jain"] is None
        for name, desired in (("a", 6), ("b", 2), ("gone", 1)):
            served.call(
                "POST", "/v1/pipelines", {"name": name, "pipeline": "linear", "desired": desired, "load": "5"}, 201
            )
        served.call("DELETE", "/v1/pipelines/gone", None, 200)
        served.run(120)
        found = served.call("GET", "/v1/fairness", None, 200)
        degrees = [found["pipelines"][name]["degree"] for name in ("a", "b")]
        assert set(found["pipelines"]) == {"a", "b"}
        # 6 and 2 are wanted of 6: 5 and 1
        assert degrees == pytest.approx([5 / 6, 1 / 2])
        assert found["least"] == degrees[1]
        assert found["degree"] == pytest.approx(sum(degrees) / 2)
        assert found["jain"] == pytest.approx(sum(degrees) ** 2 / (2 * sum(degree**2 for degree in degrees)))
        assert len(found["over_time"]) >= 5
        assert found["over_time"][-1]["degree"] == pytest.approx(found["degree"], abs=0.05)
        assert served.call("GET", "/v1/fairness?since=1e12", None, 200)["over_time"] == []
        assert served.call("GET", "/v1/fairness?since=soon", None, 400)["field"] == "since"
        served.close()


class TestPublishedTables:
    def test_table_8(self, tmp_path: Path) -> None:
        served = published(tmp_path, 16, "static-priority", USE_CASE_1)
        assert served.held() == {"EventTP1": 6, "EventTP2": 6, "ArchivalTP1": 2, "ArchivalTP2": 2}
        served.close()

    def test_table_9(self, tmp_path: Path) -> None:
        served = published(tmp_path, 16, "dynamic-priority", USE_CASE_1)
        assert served.held() == {"EventTP1": 5, "EventTP2": 5, "ArchivalTP1": 3, "ArchivalTP2": 3}
        triggers = [trigger(served, name) for name in ("EventTP1", "EventTP2")]
        for found in triggers:
            assert served.call("POST", f"{found}/on", None, 200)["on"]
        served.run(20)
        assert served.held() == {"EventTP1": 8, "EventTP2": 8, "ArchivalTP1": 0, "ArchivalTP2": 0}
        waiting = served.call("GET", "/v1/pipelines/ArchivalTP1")
        assert waiting["state"] == "waiting"
        assert "0 of at least 2" in waiting["waiting"]
        for found in triggers:
            served.call("POST", f"{found}/off", None, 200)
        served.run(20)
        assert served.held() == {"EventTP1": 5, "EventTP2": 5, "ArchivalTP1": 3, "ArchivalTP2": 3}
        served.close()

    def test_table_12(self, tmp_path: Path) -> None:
        served = published(tmp_path, 20, "static-priority", USE_CASE_2)
        assert served.held() == {"TP1": 13, "TP2": 7}
        served.close()

    def test_table_13(self, tmp_path: Path) -> None:
        served = published(tmp_path, 20, "dynamic-priority", USE_CASE_2)
        assert served.held() == {"TP1": 13, "TP2": 7}
        served.call("POST", f"{trigger(served, 'TP1')}/on", None, 200)
        served.run(20)
        assert served.held() == {"TP1": 16, "TP2": 4}
        decisions = served.call("GET", "/v1/decisions?pipeline=TP1")
        change = next(found for found in decisions if found["kind"] == "priority")
        assert (change["from"], change["to"]) == (2, 1)
        assert set(change["overhead"]) == {"drained_s", "placed_s", "first_tuple_s", "total_s"}
        served.close()

    def test_twenty_four_nodes_are_enough_for_all(self, tmp_path: Path) -> None:
        for sharing in ("static-priority", "dynamic-priority"):
            (tmp_path / sharing).mkdir()
            served = published(tmp_path / sharing, 24, sharing, USE_CASE_1)
            assert served.held() == {"EventTP1": 8, "EventTP2": 8, "ArchivalTP1": 4, "ArchivalTP2": 4}
            served.close()


class TestPipelines:
    def test_from_submission_to_the_end(self, served: Served) -> None:
        body = {"name": "orders", "pipeline": "linear", "target": {"rate": 100}}
        made = served.call("POST", "/v1/pipelines", body, 201)
        assert made["state"] == "starting"
        assert made["needed"] == 7  # what `penstock plan linear --rate 100` needs, in units of one slot
        served.run(20)
        found = served.call("GET", "/v1/pipelines/orders", None, 200)
        assert (found["state"], found["held"], len(found["nodes"])) == ("active", 7, 7)
        assert found["rate"] == pytest.approx(100)
        assert found["waiting"] is None
        served.call("PATCH", "/v1/pipelines/orders", {"target": {"rate": 200}}, 200)
        served.run(20)
        assert served.held() == {"orders": 15}
        served.call("PATCH", "/v1/pipelines/orders", {"paused": True}, 200)
        served.run(10)
        assert served.call("GET", "/v1/pipelines/orders")["state"] == "paused"
        served.call("PATCH", "/v1/pipelines/orders", {"paused": False}, 200)
        served.run(10)
        assert served.call("GET", "/v1/pipelines/orders")["state"] == "active"
        assert served.call("DELETE", "/v1/pipelines/orders", None, 200)["state"] == "ending"
        served.run(5)
        assert served.call("GET", "/v1/pipelines/orders")["state"] == "killed"
        why = [found["why"] for found in served.call("GET", "/v1/decisions?pipeline=orders")]
        assert any("'orders' was submitted" in text for text in why)
        assert any("target of 'orders' changed" in text for text in why)

    def test_the_same_again_is_the_same_and_something_else_a_conflict(self, served: Served) -> None:
        body = {"name": "a", "pipeline": "linear", "desired": 2}
        served.call("POST", "/v1/pipelines", body, 201)
        served.call("POST", "/v1/pipelines", body, 201)
        assert len(served.call("GET", "/v1/pipelines")) == 1
        answer = served.call("POST", "/v1/pipelines", {**body, "desired": 3}, 409)
        assert "is starting" in answer["error"]

    def test_a_document_and_a_plan(self, served: Served) -> None:
        import penstock

        ends = {"s": {"kind": "source"}, "e": {"kind": "sink"}}
        document = {"name": "own", "operators": ends, "streams": [{"from": "s", "to": "e"}]}
        served.call("POST", "/v1/pipelines", {"name": "own", "pipeline": document}, 201)
        plan = penstock.plan("linear", 50).document()
        made = served.call("POST", "/v1/pipelines", {"name": "planned", "plan": plan}, 201)
        assert (made["target"]["rate"], made["engine"]) == (50, "placed")

    def test_a_plan_gets_the_slots_it_names_while_they_are_free(self, served: Served) -> None:
        """The second of two plans for the same slots gets as many others, all or nothing."""
        import penstock

        nodes = tuple(Node(f"n{number}", "r1", 1, {"cpu": 100.0, "memory_mb": 3584.0}) for number in range(9, 15))
        plan = penstock.plan("linear", 50, cluster=Cluster(nodes)).document()
        named = {row["node"] for row in plan["placement"]}
        for name in ("a", "b"):
            made = served.call("POST", "/v1/pipelines", {"name": name, "plan": plan}, 201)
            assert made["desired"] == made["minimum"] == len(named)
        served.run(20)
        assert set(served.call("GET", "/v1/pipelines/a")["nodes"]) == named
        other = served.call("GET", "/v1/pipelines/b")["nodes"]
        assert len(other) == len(named)
        assert not named & set(other)

    @pytest.mark.parametrize(
        ("body", "field", "message"),
        [
            ({"pipeline": "linear"}, "name", "Field required"),
            ({"name": "a"}, "pipeline", "either a pipeline or a plan"),
            ({"name": "a", "pipeline": "linaer"}, "pipeline", "did you mean 'linear'?"),
            ({"name": "a", "pipeline": "no_such_module:p"}, "pipeline", "No module named 'no_such_module'"),
            ({"name": "a", "pipeline": "/no/such.yaml"}, "pipeline", "cannot be read"),
            ({"name": "a", "pipeline": {"name": "x"}}, "pipeline", "operators"),
            ({"name": "a", "pipeline": "linear", "minimum": 17}, "minimum", "17 is above the 16"),
            ({"name": "a", "pipeline": "linear", "minimum": 3, "maximum": 2}, "maximum", "below the minimum"),
            ({"name": "a", "pipeline": "linear", "desired": 1, "minimum": 2}, "desired", "below the minimum"),
            ({"name": "a", "pipeline": "linear", "priority": 0}, "priority", "greater than or equal to 1"),
            ({"name": "a", "pipeline": "linear", "engine": "fast"}, "engine", "known: auto, fused, placed"),
            (
                {"name": "a", "pipeline": "linear", "options": {"slotz": 1}},
                "options",
                "unknown run option 'slotz'; known: engine, batch_interval_ms",
            ),
            (
                {"name": "a", "pipeline": "linear", "options": {"batch_interval_ms": 0}},
                "options",
                "batch_interval_ms: expected at least 1 ms, found 0",
            ),
            (
                {"name": "a", "pipeline": "linear", "options": {"routing": "shuffle"}},
                "options",
                "not an option of engine 'fused'; leave it out, or use engine='placed'",
            ),
            ({"name": "a", "pipeline": "linear", "options": {"engine": "placed"}}, "options", "the field 'engine'"),
            (
                {"name": "a", "pipeline": "linear", "options": {"settings": {"spark.x.password": "hunter2"}}},
                "options",
                "'spark.x.password' holds a secret",
            ),
            ({"name": "a", "pipeline": "linear", "load": "steps:5"}, "load", "SECONDSxRATE"),
            ({"name": "a", "pipeline": "linear", "load": "trace:/etc/passwd"}, "load", "steps:"),
            ({"name": "a", "pipeline": "linear", "target": {"rate": -1}}, "target.rate", "greater than 0"),
            ({"name": "a", "pipeline": "linear", "tarket": {}}, "body", "did you mean 'target'?"),
            ({"name": "a/b", "pipeline": "linear"}, "name", "match pattern"),
            ([1], "body", "expected a JSON object"),
        ],
    )
    def test_what_is_wrong_is_a_400_that_names_the_field(
        self, served: Served, body: Any, field: str, message: str
    ) -> None:
        answer = served.call("POST", "/v1/pipelines", body, 400)
        assert answer["field"] == field
        assert message in answer["error"]
        assert served.call("GET", "/v1/pipelines") == []

    def test_code_that_hurts_where_it_is_imported_hurts_nobody_here(
        self, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "exits.py").write_text("import os\nos._exit(3)")
        (tmp_path / "hangs.py").write_text("while True: pass")
        (tmp_path / "raises.py").write_text("raise RuntimeError('of two\\nlines')")
        (tmp_path / "chatty.py").write_text(
            "import penstock\nprint('hello')\np = penstock.pipeline('p')\np.source('s')\np.sink('e', reads='s')\n"
        )
        monkeypatch.chdir(tmp_path)
        answer = served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "exits:p"}, 400)
        assert "ended with 3" in answer["error"]
        answer = served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "raises:p"}, 400)
        assert answer["error"].endswith("RuntimeError: of two lines")
        monkeypatch.setattr("penstock.control.pipeline_document.IMPORT_SECONDS", 1.0)
        answer = served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "hangs:p"}, 400)
        assert "more than 1 s" in answer["error"]
        monkeypatch.setattr("penstock.control.pipeline_document.IMPORT_SECONDS", 30.0)
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "chatty:p"}, 201)

    def test_pages(self, served: Served) -> None:
        for number in range(5):
            served.call("POST", "/v1/pipelines", {"name": f"p{number}", "pipeline": "linear"}, 201)
        answer = served.http.get("/v1/pipelines?limit=2")
        assert [found["name"] for found in answer.json()] == ["p0", "p1"]
        answer = served.http.get(answer.links["next"]["url"])
        assert [found["name"] for found in answer.json()] == ["p2", "p3"]
        answer = served.http.get(answer.links["next"]["url"])
        assert [found["name"] for found in answer.json()] == ["p4"]
        assert "next" not in answer.links
        assert served.call("GET", "/v1/pipelines?limit=x", None, 400)["field"] == "limit"
        assert served.call("GET", "/v1/decisions?since=yesterday", None, 400)["field"] == "since"


class TestTriggers:
    def test_the_arrival_rate_raises_and_lowers_by_itself(self, served: Served) -> None:
        """Above 50/s for 3 s it goes on; off below 0.75 of that. The load is 10, then 80 for 30 s, then 10."""
        served.call("PUT", "/v1/policy", {"sharing": "dynamic-priority"}, 200)
        for name in ("a", "b"):
            body = {"name": name, "pipeline": "linear", "desired": 12, "minimum": 2, "load": "10"}
            served.call("POST", "/v1/pipelines", body, 201)
        served.run(20)
        assert served.held() == {"a": 8, "b": 8}
        served.call("POST", "/v1/pipelines/a/triggers", {"kind": "arrival-rate", "above": 50}, 201)
        served.call("PATCH", "/v1/pipelines/a", {"load": "steps:20x10,30x80,1x10"}, 200)
        served.run(15)
        assert served.held() == {"a": 8, "b": 8}
        served.run(20)
        assert served.held() == {"a": 12, "b": 4}
        served.run(40)
        assert served.held() == {"a": 8, "b": 8}
        messages = [found["why"] for found in served.call("GET", "/v1/events?pipeline=a") if found["kind"] == "message"]
        assert sum(text.startswith("trigger on") for text in messages) == 1
        assert sum(text.startswith("trigger off") for text in messages) == 1

    def test_code_decides_and_code_that_raises_is_disabled(
        self, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "conditions.py").write_text(
            "def late(readings):\n    return readings['backlog'] > 5\ndef bad(readings):\n    return 1 / 0\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "desired": 1, "load": "1e6"}, 201)
        for kind in ("conditions:late", "conditions:bad"):
            served.call("POST", "/v1/pipelines/a/triggers", {"kind": kind, "for_seconds": 1}, 201)
        waited = Stopwatch()
        served.run(20)
        late, bad = served.call("GET", "/v1/pipelines/a/triggers")
        while (not late["on"] or bad["enabled"]) and waited.seconds() < 30:
            # the code is asked in processes of its own, which take the time they take
            served.run(2)
            late, bad = served.call("GET", "/v1/pipelines/a/triggers")
        assert late["on"]
        assert not bad["enabled"]
        assert served.call("GET", "/v1/pipelines/a")["priority"] == 1

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"kind": "arrival"}, "kind"),
            ({"kind": "code"}, "kind"),
            ({"kind": "no_such_module:x"}, "kind"),
            ({"kind": "arrival-rate"}, "above"),
            ({"kind": "batch-share", "above": 80}, "field"),
            ({"kind": "arrival-rate", "above": 5, "below": 6}, "below"),
            ({"kind": "arrival-rate", "above": 5, "share": 2}, "share"),
        ],
    )
    def test_what_is_wrong(self, served: Served, body: dict[str, Any], field: str) -> None:
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear"}, 201)
        assert served.call("POST", "/v1/pipelines/a/triggers", body, 400)["field"] == field

    def test_edited_disabled_removed(self, served: Served) -> None:
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear"}, 201)
        path = trigger(served, "a")
        assert served.call("PATCH", path, {"above": 7, "priority": 3}, 200)["above"] == 7
        served.call("PATCH", path, {"enabled": False}, 200)
        assert "disabled" in served.call("POST", f"{path}/on", None, 409)["error"]
        assert served.call("DELETE", path, None, 200) == []
        served.call("DELETE", path, None, 404)
        served.call("POST", f"{path}/sideways", None, 404)
        served.call("GET", "/v1/pipelines/a/triggers/1", None, 405)


class TestNodes:
    def test_are_at_most_so_many(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.control.controller.MAX_NODES", 18)
        served.call("POST", "/v1/nodes", {"count": 2}, 202)  # there are 16
        answer = served.call("POST", "/v1/nodes", {"count": 1}, 409)
        assert answer["error"] == "1 more nodes: a controller keeps at most 18, and has 18"
        served.call("DELETE", "/v1/nodes/n3", None, 202)
        served.run(10)
        served.call("POST", "/v1/nodes", {"count": 1}, 202)

    def test_come_and_go(self, served: Served) -> None:
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "desired": 20, "load": "5"}, 201)
        served.run(10)
        assert served.held() == {"a": 16}
        assert served.call("POST", "/v1/nodes", {"count": 2}, 202) == {"nodes": ["n17", "n18"]}
        served.run(10)
        assert served.held() == {"a": 18}
        assert served.call("DELETE", "/v1/nodes/n3", None, 202)["state"] == "leaving"
        served.run(10)
        assert served.held() == {"a": 17}
        states = {found["name"]: found["state"] for found in served.call("GET", "/v1/nodes")}
        assert states["n3"] == "gone"
        served.call("DELETE", "/v1/nodes/x", None, 404)


class TestDoors:
    PATHS = ("/v1/pipelines", "/v1/nodes", "/v1/policy", "/metrics", "/openapi.json", "/docs", "/nothing")

    @pytest.mark.parametrize("path", PATHS)
    def test_nothing_without_a_token_but_health(self, served: Served, path: str) -> None:
        for token in ("", "Bearer", "Bearer ", "Bearer wrong", "Basic may-do-all", "may-do-all"):
            assert served.http.get(path, headers={"Authorization": token}).status_code == 401
        assert served.http.get("/health", headers={"Authorization": ""}).json()["status"] == "ok"

    def test_the_second_token_only_reads(self, served: Served) -> None:
        assert served.http.get("/v1/pipelines", headers=READER).status_code == 200
        assert served.http.get("/metrics", headers=READER).status_code == 200
        assert served.http.post("/v1/pipelines", headers=READER, json={}).status_code == 403
        assert served.http.delete("/v1/pipelines/a", headers=READER).status_code == 403

    def test_other_hosts_and_origins_are_not_answered(self, served: Served) -> None:
        for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:8080", ""):
            assert served.http.get("/health", headers={"Host": host}).status_code == 403
        assert served.http.get("/health", headers={"Origin": "http://evil.example"}).status_code == 403
        assert served.http.get("/health", headers={"Origin": "null"}).status_code == 403
        assert served.http.get("/health", headers={"Origin": "http://127.0.0.1:8080"}).status_code == 200

    def test_a_body_has_a_limit(self, served: Served) -> None:
        assert served.http.post("/v1/pipelines", content=b"[" * 5_000_000).status_code == 413

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield b"[" * 1_000_000

        assert served.http.post("/v1/pipelines", content=pieces()).status_code == 400


class TestWhatIsSeen:
    def test_metrics_have_the_names_and_units_of_the_list(self, served: Served) -> None:
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "target": {"rate": 50}}, 201)
        served.run(30)
        text = served.http.get("/metrics").text
        for metric in Metric:
            for scope in metric.scopes:
                assert f"# HELP penstock_{scope}_{metric} {metric.help} Unit: {metric.unit}." in text
        assert 'penstock_pipeline_held{pipeline="a"} 4.0' in text
        assert 'penstock_nodes{state="alive"} 16.0' in text
        rows = served.call("GET", "/v1/statistics/a?metric=rate")
        assert [row["unit"] for row in rows] == ["tuples/s"] * len(rows)
        assert rows[-1]["value"] == pytest.approx(50)
        assert served.call("GET", "/v1/statistics/a?metric=rtae", None, 400)["field"] == "metric"
        assert served.call("GET", "/v1/statistics/a?scope=slot", None, 400)["field"] == "scope"

    def test_statistics_of_operators_threads_and_nodes(self, served: Served) -> None:
        """On four slots each does a quarter of what comes; all operators of `linear` get what the source sends."""
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "target": {"rate": 50}}, 201)
        served.run(40)
        rows = served.call("GET", "/v1/statistics/a?scope=operator&metric=rate_in")
        assert {row["scope"] for row in rows} == {"operator"}
        assert {row["operator"]: row["value"] for row in rows}["X"] == pytest.approx(50)
        rows = served.call("GET", "/v1/statistics/a?scope=thread&metric=rate_in")
        last = [row for row in rows if row["operator"] == "X" and row["at"] == rows[-1]["at"]]
        assert [row["value"] for row in last] == [pytest.approx(12.5)] * 4
        assert {(row["node"], row["slot"]) for row in last} == {(f"n{number}", 0) for number in range(1, 5)}
        rows = served.call("GET", "/v1/statistics/n1?metric=slots_used")
        assert rows[-1] == {**rows[-1], "scope": "node", "node": "n1", "unit": "slots", "seconds": 10, "value": 1.0}
        text = served.http.get("/metrics").text
        assert 'penstock_thread_rate_in{node="n1",operator="X",pipeline="a",slot="0"} 12.5' in text
        assert 'penstock_node_slots_used{node="n1"} 1.0' in text

    def test_what_waits_in_topics_by_partition(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "target": {"rate": 50}}, 201)
        parts = tuple(PartReading(None, None, {"lag": lag}, f"in/{number}") for number, lag in enumerate((30.0, 12.0)))
        observe = served.executors.observe
        monkeypatch.setattr(
            served.executors, "observe", lambda now: [*observe(now), Readings("a", {"lag": 42.0}, parts=parts)]
        )
        served.run(30)
        rows = served.call("GET", "/v1/statistics/a?scope=partition")
        last = [row for row in rows if row["at"] == rows[-1]["at"]]
        assert {(row["topic"], row["partition"], row["value"]) for row in last} == {
            ("in", "0", 30.0),
            ("in", "1", 12.0),
        }
        assert {(row["scope"], row["metric"], row["unit"]) for row in rows} == {("partition", "lag", "messages")}
        assert served.call("GET", "/v1/statistics/a?metric=lag")[-1]["value"] == 42.0
        assert served.call("GET", "/v1/statistics/a?scope=operator&metric=lag") == []
        assert served.call("GET", "/v1/pipelines/a")["lag"] == 42.0
        assert 'penstock_partition_lag{partition="1",pipeline="a",topic="in"} 12.0' in served.http.get("/metrics").text

    def test_a_trigger_by_lag(self, served: Served) -> None:
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "target": {"rate": 50}}, 201)
        at = "/v1/pipelines/a/triggers"
        made = served.call("POST", at, {"kind": "lag", "above": 1000, "below": 10, "for_seconds": 5}, 201)
        assert (made["kind"], made["above"], made["below"], made["for_seconds"]) == ("lag", 1000.0, 10.0, 5.0)
        assert served.call("POST", at, {"kind": "lag"}, 400)["field"] == "above"
        assert served.call("POST", at, {"kind": "lag", "above": 5, "below": 6}, 400)["field"] == "below"

    def test_who_was_killed_is_no_longer_measured(self, served: Served) -> None:
        """The newest ten seconds that are kept are those in which it ended."""
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "target": {"rate": 50}}, 201)
        served.run(40)
        served.call("DELETE", "/v1/pipelines/a", None, 200)
        killed = served.clock.time
        served.run(60)
        for scope in ("pipeline", "operator", "thread"):
            rows = served.call("GET", f"/v1/statistics/a?scope={scope}")
            assert rows
            assert max(row["at"] for row in rows) <= killed + 2

    def test_logs_and_the_page_for_programs(self, served: Served) -> None:
        served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear"}, 201)
        assert served.http.get("/v1/pipelines/a/log").text == "of a"
        served.call("GET", "/v1/pipelines/b/log", None, 404)
        page = served.call("GET", "/openapi.json")
        assert "minimum" in json.dumps(page["paths"]["/v1/pipelines"]["post"]["requestBody"])

    def test_trouble_with_the_store_is_said(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        from penstock.control.errors import StoreError

        def full(*_: object) -> None:
            raise StoreError("store: database or disk is full")

        monkeypatch.setattr(served.controller.store, "commit", full)
        assert "full" in served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear"}, 503)["error"]
        monkeypatch.undo()
        assert served.call("GET", "/v1/pipelines") == []
