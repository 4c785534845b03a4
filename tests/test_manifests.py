"""What Kubernetes and YARN are given: held against Kubernetes' own schemas, with the arithmetic of quotas by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

import penstock
from penstock.cli.main import run
from penstock.spark.internals.executors import executor_settings

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "1.30"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    penstock.manifests(tmp_path, application="orders", namespace="streams", resources=("penstock.io/node-a",))
    return tmp_path


def test_kubernetes_takes_them(written: Path) -> None:
    kinds = []
    for file in ("controller.yaml", "application.yaml", "executor-pod.yaml"):
        for document in documents(written / file):
            kubernetes_validate.validate(document, VERSION, strict=True)
            kinds.append(document["kind"])
    assert {"Deployment", "Service", "PersistentVolumeClaim", "NetworkPolicy", "Role", "Pod"} <= set(kinds)


def test_the_check_can_fail(written: Path) -> None:
    deployment = next(one for one in documents(written / "controller.yaml") if one["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "http"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSION, strict=True)


def test_the_controller_is_alone_and_holds_no_secret(written: Path) -> None:
    deployment = next(one for one in documents(written / "controller.yaml") if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]["type"]) == (1, "Recreate")
    assert pod["volumes"][1]["secret"]["secretName"] == "penstock-tokens"
    assert "Secret" not in {document["kind"] for document in documents(written / "controller.yaml")}
    assert pod["securityContext"]["runAsNonRoot"]
    # the probe is answered: it calls the controller by a name it answers to
    arguments = pod["containers"][0]["args"]
    for kind, path in (("readiness", "/health/ready"), ("liveness", "/health/live")):
        probe = pod["containers"][0][f"{kind}Probe"]["httpGet"]
        assert arguments[arguments.index("--answer-to") + 1] == probe["httpHeaders"][0]["value"]
        assert probe["path"] == path


def test_an_executor_asks_for_its_node(written: Path) -> None:
    (pod,) = documents(written / "executor-pod.yaml")
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    assert requests["penstock.io/node-a"] == "1"
    assert requests["cpu"] == "1"


@pytest.mark.parametrize("manager", ["kubernetes", "yarn"])
def test_settings_let_executors_come_and_go(tmp_path: Path, manager: str) -> None:
    """The same that do so on a standalone cluster."""
    assert run(["manifests", str(tmp_path), "--manager", manager, "--minimum", "2", "--maximum", "9", "--json"]) == 0
    lines = (tmp_path / "spark-defaults.conf").read_text("utf-8").splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if len(line.split(maxsplit=1)) == 2)
    proven = executor_settings(2, by_slot=False)
    del proven["spark.executor.instances"]
    assert {**proven, "spark.dynamicAllocation.maxExecutors": "9"}.items() <= settings.items()
    assert (tmp_path / "controller.yaml").exists() == (manager == "kubernetes")


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--application", "Big_App", "no name Kubernetes takes"),
        ("--manager", "mesos", "manager"),
        ("--maximum", "0", "below the minimum"),
        ("--resource", "gpu", "names such as penstock.io/node-a"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, complaint: str
) -> None:
    assert run(["manifests", str(tmp_path / "out"), option, value]) == 2
    assert complaint in capsys.readouterr().err


def test_serve_is_the_controller_in_the_foreground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    (tokens / "token").write_text("t" * 32, "utf-8")
    (tokens / "read-token").write_text("short", "utf-8")
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    assert run(["serve", "--simulated", "--token-folder", str(tokens)]) == 2
    assert run(["serve"]) == 2
    (tokens / "read-token").write_text("r" * 32, "utf-8")
    (tokens / "attach-token").write_text("a" * 32, "utf-8")
    started: list[Path] = []
    monkeypatch.setattr("penstock.service.server.serve", started.append)
    assert run(["serve", "--simulated", "--token-folder", str(tokens), "--answer-to", "penstock.streams"]) == 0
    settings = json.loads((started[0] / "controller.json").read_text("utf-8"))
    assert settings["answer_to"] == ["penstock.streams"]
    assert (started[0] / "token").read_text("utf-8").strip() == "t" * 32
