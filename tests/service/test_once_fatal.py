"""Requests that once ended the controller's loop, over HTTP: each is refused by its field or done, and whoever comes
next is decided upon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from service_builders import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

LINEAR = {"name": "a", "pipeline": "linear", "target": {"rate": 20}}


@pytest.fixture
def served(tmp_path: Path) -> Any:
    made = serve(tmp_path, nodes=8)
    yield made
    made.close()


def next_is_decided_upon(served: Served) -> None:
    served.run(30)
    served.call("POST", "/v1/pipelines", {"name": "next", "pipeline": "linear", "desired": 1}, 201)
    served.run(10)
    shown = served.call("GET", "/v1/pipelines/next", None, 200)
    assert shown["state"] in {"active", "starting", "waiting"}, shown
    record = served.controller.state.pipelines["next"]
    assert record.assigned or record.waiting, record
    assert served.controller.health().ok, served.controller.health()
    assert served.controller.health().quarantined == ()


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"elastic": {"catch_up_seconds": 0}}, "elastic.catch_up_seconds"),
        ({"target": {"rate": 1e-7}}, "target.rate"),
        ({"elastic": {"veto": ".x:y"}}, "elastic.veto"),
        ({"elastic": {"veto": "nothing.there:y"}}, "elastic.veto"),
        ({"elastic": {"max_utilisation": 1e-300}}, "elastic.max_utilisation"),
        ({"load": "1e13"}, "load"),
    ],
)
def test_is_refused_and_not_stored(served: Served, more: dict[str, Any], field: str) -> None:
    answer = served.call("POST", "/v1/pipelines", {**LINEAR, **more}, 400)
    assert answer["field"] == field
    assert served.call("GET", "/v1/pipelines", None, 200) == []
    next_is_decided_upon(served)


@pytest.mark.parametrize(
    "more",
    [
        {"elastic": {"excluded_hours": [1, 2]}},
        {"load": "1e8"},
        {"load": "1e12"},
        {"elastic": {"veto": "sys:exit"}, "load": "200"},
        {"target": {"rate": 1e12, "latency_ms": 5e-324}},
    ],
)
def test_is_done_and_stops_nobody(served: Served, more: dict[str, Any]) -> None:
    served.call("POST", "/v1/pipelines", {**LINEAR, **more}, 201)
    served.run(60)
    served.call("GET", "/v1/pipelines", None, 200)
    next_is_decided_upon(served)


def test_a_pipeline_that_multiplies_beyond_counting_is_refused(served: Served) -> None:
    document = {
        "name": "much",
        "operators": {"s": {"kind": "source"}, "x": {"model": "pi"}, "y": {"model": "pi"}, "o": {"kind": "sink"}},
        "streams": [
            {"from": "s", "to": "x"},
            {"from": "x", "to": "y", "selectivity": 1e300},
            {"from": "y", "to": "o", "selectivity": 1e300},
        ],
    }
    assert served.call("POST", "/v1/pipelines", {**LINEAR, "pipeline": document}, 400)["field"] == "pipeline"
    next_is_decided_upon(served)


def test_applications_that_ask_for_a_million_each(served: Served) -> None:
    for number in range(7):
        name = f"app{number}"
        served.call("POST", "/v1/attached", {"name": name}, 201)
        values = {"rate": 1e15, "offered_rate": 1e15, "backlog": 1e15}
        report = {"held": 1, "wanted": 1_000_000, "why": "all", "values": values}
        served.call("POST", f"/v1/attached/{name}/reports", report, 200)
    next_is_decided_upon(served)


def test_shared_with_two_pipelines_on_nodes_of_two_slots(tmp_path: Path) -> None:
    served = serve(tmp_path, nodes=4, slots=2)
    served.call("PUT", "/v1/policy", {"sharing": "shared"}, 200)
    for name in ("a", "b"):
        served.call("POST", "/v1/pipelines", {"name": name, "pipeline": "linear", "desired": 3, "load": "33"}, 201)
        served.run(6)
    served.run(30)
    assert sum(served.held().values()) == 4
    next_is_decided_upon(served)
    served.close()


def test_code_of_a_trigger_that_exits_is_disabled(served: Served) -> None:
    served.call("POST", "/v1/pipelines", LINEAR, 201)
    served.call("POST", "/v1/pipelines/a/triggers", {"kind": "sys:exit"}, 201)
    next_is_decided_upon(served)


def test_what_is_ending_is_not_promised_again(served: Served) -> None:
    served.call("POST", "/v1/pipelines", LINEAR, 201)
    served.run(10)
    served.call("DELETE", "/v1/pipelines/a", None, 200)
    assert "still ending" in served.call("POST", "/v1/pipelines", LINEAR, 409)["error"]
    served.run(10)
    served.call("POST", "/v1/pipelines", LINEAR, 201)
    served.run(10)
    assert served.call("GET", "/v1/pipelines/a", None, 200)["state"] == "active"


def test_a_question_about_what_would_be_survives_them_too(served: Served) -> None:
    served.call("POST", "/v1/pipelines", {**LINEAR, "load": "1e12"}, 201)
    served.run(20)
    served.call("GET", "/v1/views/what-if?pipeline=a&rate=1e12&seconds=20&nodes=3&policy=shared", None, 200)
