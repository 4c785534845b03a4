"""What the processes of a standalone cluster are called and told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import tries
from penstock.base.processes import MARK
from penstock.cluster.slot_resources import resource_name
from penstock.spark.clusters.standalone import daemons
from penstock.spark.clusters.standalone.daemons import (
    ClusterEnvironment,
    offered_resources,
    worker_command,
    worker_cores,
    worker_memory_mb,
)
from penstock.spark.session.java import spark_home
from penstock.spark.session.secret import properties_text, settings_from_file


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("n1", "node-n1"),
        ("big-2", "node-big-2"),
        ("b.1", "node-b_2e1"),  # a dot would end the name in a setting's key
        ("a_b", "node-a_5fb"),  # the escape character itself
        ("memory", "node-memory"),  # a word of Spark's own
        ("né", "node-n_c3_a9"),  # UTF-8: c3 a9
        ("a b=c", "node-a_20b_3dc"),
    ],
)
def test_nodes_become_names_of_resources(node: str, name: str) -> None:
    assert resource_name(node) == name


@tries(4)
@given(st.lists(st.text(alphabet="ab_-.5fé ", min_size=1), min_size=2, max_size=2, unique=True))
def test_different_nodes_get_different_names(nodes: list[str]) -> None:
    assert resource_name(nodes[0]) != resource_name(nodes[1])


def test_a_worker_offers_an_address_for_every_slot() -> None:
    assert offered_resources("b.1", 3) == [
        {"id": {"componentName": "spark.worker", "resourceName": "node-b_2e1"}, "addresses": ["0", "1", "2"]},
        {"id": {"componentName": "spark.worker", "resourceName": "slot"}, "addresses": ["b.1/0", "b.1/1", "b.1/2"]},
        {"id": {"componentName": "spark.worker", "resourceName": "slot-0-b_2e1"}, "addresses": ["b.1/0"]},
        {"id": {"componentName": "spark.worker", "resourceName": "slot-1-b_2e1"}, "addresses": ["b.1/1"]},
        {"id": {"componentName": "spark.worker", "resourceName": "slot-2-b_2e1"}, "addresses": ["b.1/2"]},
    ]


def test_slots_limit_a_worker_not_cores_or_memory() -> None:
    assert (worker_cores(2), worker_cores(10)) == (64, 160)
    # 2 slots of 700.5 MB are 1401 MB, 3 are 2101.5; 1024 for Spark's default executor.
    assert (worker_memory_mb(2, 700.5), worker_memory_mb(3, 700.5)) == (2425, 3126)


def test_backslashes_survive_a_properties_file() -> None:
    assert properties_text({"a": "b\\c", "d": "e"}) == "a=b\\\\c\nd=e\n"


def test_a_worker_is_told_its_node_and_the_secret_in_a_private_file(tmp_path: Path) -> None:
    settled = ClusterEnvironment("mark", tmp_path, secret="hush" * 8)
    command = worker_command(settled, "b.1", 2, 1024, "spark://h:1")
    assert command[1:4] == ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
    assert command[-1] == "spark://h:1"
    file = tmp_path / "conf" / "node-b_2e1.properties"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    text = file.read_text()
    assert "spark.worker.resource.node-b_2e1.amount=2\n" in text
    assert "spark.worker.resource.slot.amount=2\n" in text
    assert f"spark.authenticate=true\nspark.authenticate.secret={'hush' * 8}\n" in text
    environment = daemons.environment(settled, {})
    assert "hush" not in " ".join([*command, *environment.values()]) + repr(settled)


def test_what_the_environment_says_about_other_sparks_is_left_out(tmp_path: Path) -> None:
    given_ = {"SPARK_WORKER_CORES": "1", "SPARK_CONF_DIR": "/x", "SPARK_LOCAL_DIRS": "/fast", "HOME": "/h"}
    made = daemons.environment(ClusterEnvironment("m", tmp_path), given_)
    assert "SPARK_WORKER_CORES" not in made
    assert made["SPARK_CONF_DIR"] == str(spark_home() / "conf")
    assert (made["SPARK_LOCAL_DIRS"], made["HOME"], made[MARK]) == ("/fast", "/h", "m")
    assert made["SPARK_LOCAL_IP"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, "--properties-file {file} --load-spark-defaults pyspark-shell"),
        (
            "--jars a.jar pyspark-shell",
            "--jars a.jar  --properties-file {file} --load-spark-defaults pyspark-shell",
        ),
    ],
)
def test_settings_from_a_file_leave_the_users_own_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None, expected: str
) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    if own is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", own)
    folder = tmp_path / "private"
    file = folder / "own.properties"
    with settings_from_file({"spark.secret": "a\\b"}, folder):
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == expected.format(file=file)
        assert file.read_text() == "spark.secret=a\\\\b\n"
        assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert os.environ.get("PYSPARK_SUBMIT_ARGS") == own
    assert not folder.exists()
