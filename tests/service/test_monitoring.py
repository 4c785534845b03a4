"""What is given to Prometheus and Grafana speaks of metrics there are, and the read token is enough to scrape."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from service_builders import READER, serve

from penstock.control.metrics import Metric, exposed_names

DOCS = Path(__file__).parents[2] / "docs" / "controller.md"
MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"
METRIC = re.compile(r"\bpenstock_\w+")


def exposed(folder: Path) -> set[str]:
    served = serve(folder, nodes=4)
    served.call("POST", "/v1/pipelines", {"name": 'odd"\\name', "pipeline": "linear", "target": {"rate": 20}}, 201)
    served.run(30)
    assert served.http.get("/metrics", headers={"Authorization": ""}).status_code == 401
    answer = served.http.get("/metrics", headers=READER)
    assert answer.status_code == 200
    families = list(text_string_to_metric_families(answer.text))
    served.close()
    samples = [sample for family in families for sample in family.samples if "pipeline" in sample.labels]
    assert {sample.labels["pipeline"] for sample in samples} == {'odd"\\name'}
    return {family.name for family in families}


def test_every_metric_is_exposed_once(tmp_path: Path) -> None:
    names = exposed(tmp_path)
    # the process's own metrics belong to somebody else's registry
    assert names == exposed_names()


@pytest.mark.parametrize("file", ["grafana-dashboard.json", "alerts.yaml"])
def test_examples_name_metrics_there_are(file: str) -> None:
    text = (MONITORING / file).read_text("utf-8")
    named = set(METRIC.findall(text))
    assert named
    assert named <= exposed_names()


def test_the_docs_list_every_metric_with_its_unit() -> None:
    """The table of docs/controller.md: `a`, `b` (unit of both, a note)."""
    rows = re.findall(r"^\| ([a-z, ]+) \| (`.+) \|$", DOCS.read_text("utf-8").split("## Statistics")[1], re.MULTILINE)
    listed = {
        (scope, name, unit)
        for scopes, cell in rows
        for scope in scopes.split(", ")
        for names, unit in re.findall(r"((?:`\w+`(?:, )?)+) \(([^,)]+)[^)]*\)", cell)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert listed == {(str(scope), str(metric), metric.unit) for metric in Metric for scope in metric.scopes}


def test_the_dashboard_has_panels_that_do_not_overlap() -> None:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8"))
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert panel["targets"]
        assert place["x"] + place["w"] <= 24
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & mine
        cells |= mine
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_alerts_say_what_and_what_to_do() -> None:
    rules = [
        rule
        for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["groups"]
        for rule in group["rules"]
    ]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert {"summary", "description"} == set(rule["annotations"])
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert "for" not in rule or re.fullmatch(r"\d+[smh]", rule["for"])
