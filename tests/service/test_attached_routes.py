"""Applications that register themselves, over HTTP: listed, admitted to slots, explained, and gone without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from service_builders import READER, Served, serve

from penstock.control.executors.attached_applications import SILENT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADVICE = {
    "limit": "executors",
    "what_to_do": "take 3 executors of one core instead of 1",
    "evidence": ["9 batches: 0.2 s each"],
    "target_rate": 1000.0,
    "most_rate_now": 400.0,
    "headroom": -0.6,
    "batch_seconds": 1.0,
    "max_offsets_per_trigger": 400,
    "needed": 3,
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = serve(tmp_path, nodes=2, slots=2)
    yield served
    served.close()


class Application:
    """As an attached one behaves: it says what it has, and has what it is admitted to."""

    def __init__(self, served: Served, name: str = "shop", **more: Any) -> None:
        self.served, self.name = served, name
        served.call("POST", "/v1/attached", {"name": name, "target": {"latency_ms": 2000.0}, **more}, 201)
        self.serial, self.held, self.nodes = -1, 0, None

    def report(self, wanted: int, status: int = 200, **more: Any) -> Any:
        body = {
            "held": self.held,
            "wanted": wanted,
            "why": f"1,000 rows/s arrive: {wanted} executors are needed",
            "serial": self.serial,
            "values": {"rate": 400.0, "offered_rate": 1000.0, "backlog": 50.0},
            "advice": ADVICE,
            **more,
        }
        answer = self.served.call("POST", f"/v1/attached/{self.name}/reports", body, status)
        if status == 200:
            self.serial, self.held = answer["serial"], min(wanted, answer["admitted"])
        self.served.run(0.5)
        return answer

    def live(self, wanted: int, reports: int = 4) -> None:
        for _ in range(reports):
            self.report(wanted)

    def shown(self) -> Any:
        return self.served.call("GET", f"/v1/pipelines/{self.name}", status=200)


def test_listed_with_its_readings_and_decisions(served: Served) -> None:
    shop = Application(served)
    shop.live(3)
    shown = shop.shown()
    assert (shown["state"], shown["engine"], shown["rate"], shown["backlog"]) == ("active", "attached", 400.0, 50.0)
    # units are nodes of two slots: three slots are two units
    assert (shown["needed"], shown["assigned"], shown["held"]) == (2, 2, 1)
    decisions = served.call("GET", "/v1/decisions?pipeline=shop")
    assert [decision["kind"] for decision in decisions] == ["start", "scale", "grow"]
    assert decisions[1]["why"] == "1,000 rows/s arrive: 3 executors are needed"
    assert decisions[1]["expected"]["limit"] == "executors"
    assert served.call("GET", "/v1/attached/shop/advice")["what_to_do"] == ADVICE["what_to_do"]
    assert 'penstock_pipeline_rate{pipeline="shop"} 400.0' in served.http.get("/metrics").text
    view = served.call("GET", "/v1/views/pipeline?name=shop", status=200)
    assert view["advice"]["evidence"] == ADVICE["evidence"]
    assert view["graph"] is None
    assert [row["name"] for row in served.call("GET", "/v1/views/fleet")["pipelines"]] == ["shop"]
    served.call("GET", "/v1/views/what-if?pipeline=shop&nodes=3&seconds=20", status=200)


def test_a_higher_priority_gets_what_a_lower_one_had(served: Served) -> None:
    first, second = Application(served, "first"), Application(served, "second")
    for _ in range(6):
        first.report(4)
        second.report(4)
    assert (first.held, second.held) == (2, 2)
    served.call("PATCH", "/v1/pipelines/first", {"minimum": 2, "priority": 1}, 200)
    for _ in range(6):
        first.report(4)
        second.report(4)
    shown = second.shown()
    assert (first.held, second.held) == (4, 0)
    assert (shown["state"], shown["waiting"] is None) == ("waiting", False)


def test_limits_hold_and_are_said(served: Served) -> None:
    shop = Application(served, maximum=2)
    shop.live(4)
    assert shop.held == 2
    scale = next(entry for entry in served.call("GET", "/v1/decisions") if entry["kind"] == "scale")
    assert scale["rejected"] == [{"alternative": "2, as it asks", "why": "its maximum is 1"}]


def test_nodes_are_where_it_says(served: Served) -> None:
    """Slots it was not admitted to are not its own, and while it is there nothing is said of it."""
    shop = Application(served)
    shop.report(1)
    admitted = shop.report(1)
    (node, _), _ = admitted["slots"]
    other = {"n1": "n2", "n2": "n1"}[node]
    shop.report(1, nodes={other: 1})
    assert shop.shown()["held"] == 0
    shop.report(1, nodes={node: 2})
    assert shop.shown()["nodes"] == [node]


def test_it_goes_away_cleanly(served: Served) -> None:
    shop, other = Application(served), Application(served, "other")
    for _ in range(4):
        shop.report(2)
        other.report(4)
    assert served.call("DELETE", "/v1/pipelines/shop", status=200)["state"] == "ending"
    for _ in range(4):
        other.report(4)
    assert shop.shown()["state"] == "killed"
    assert other.held == 4
    assert "was let go by the controller" in shop.report(2, 409)["error"]


def test_one_that_is_silent_is_gone_and_may_come_back(served: Served) -> None:
    shop = Application(served)
    shop.live(2)
    served.wall.time += SILENT_SECONDS + 1
    served.run(2.0)
    assert shop.shown()["state"] == "killed"
    assert "nothing was heard of it for 61 s" in str(served.call("GET", "/v1/events?pipeline=shop"))
    assert "has to register first" in shop.report(2, 404)["error"]
    back = Application(served)
    back.live(2)
    assert back.shown()["state"] == "active"


def test_what_is_refused(served: Served) -> None:
    shop = Application(served)
    shop.live(1)
    assert served.call("PATCH", "/v1/pipelines/shop", {"paused": True}, 409)["error"].endswith(
        "nobody else pauses them"
    )
    assert served.call("POST", "/v1/pipelines", {"name": "b", "pipeline": "linear", "engine": "attached"}, 400)
    served.call("POST", "/v1/pipelines", {"name": "b", "pipeline": "linear"}, 201)
    report = {"held": 1, "wanted": 1, "why": ""}
    assert "no attached application" in served.call("POST", "/v1/attached/b/reports", report, 409)["error"]
    served.call("POST", "/v1/attached/nobody/reports", report, 404)
    served.call("POST", "/v1/attached/shop/reports", {**report, "wanted": 0}, 400)
    served.call("POST", "/v1/attached/shop/reports", {**report, "values": {"speed": 1}}, 400)
    served.call("POST", "/v1/attached", {"name": "big", "minimum": 1000}, 400)
    assert served.http.post("/v1/attached", json={"name": "x"}, headers=READER).status_code == 403
    assert served.http.post("/v1/attached/shop/reports", json=report, headers=READER).status_code == 403
    assert served.http.get("/v1/attached/shop/advice", headers=READER).status_code == 200


def test_the_documented_order_of_a_priority_stops_none_of_its_queries(tmp_path: Path) -> None:
    served = serve(tmp_path, nodes=2, slots=2)
    policy = {"sharing": "dynamic-priority", "rescheduling": "documented"}
    assert served.call("PUT", "/v1/policy", policy, 200)["rescheduling"] == "documented"
    shop = Application(served)
    shop.live(2)
    served.call("PATCH", "/v1/pipelines/shop", {"priority": 1}, 200)
    shop.live(2)
    shown = shop.shown()
    assert (shown["state"], shown["priority"], shown["held"]) == ("active", 1, 1)
    served.close()
