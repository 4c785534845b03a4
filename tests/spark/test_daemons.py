"""What the processes of a standalone cluster are called and told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import tries
from penstock.spark import daemons
from penstock.spark.daemons import (
    Settled,
    offered_resources,
    properties_text,
    resource_name,
    worker_command,
    worker_cores,
    worker_memory_mb,
)
from penstock.spark.processes import MARK


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
        {"id": {"componentName": "spark.worker", "resourceName": "node-b_2e1"}, "addresses": ["0", "1", "2"]}
    ]


def test_slots_limit_a_worker_not_cores_or_memory() -> None:
    assert (worker_cores(2), worker_cores(10)) == (64, 160)
    # 2 slots of 700.5 MB are 1401 MB, 3 are 2101.5; 1024 for Spark's default executor.
    assert (worker_memory_mb(2, 700.5), worker_memory_mb(3, 700.5)) == (2425, 3126)


def test_backslashes_survive_a_properties_file() -> None:
    assert properties_text({"a": "b\\c", "d": "e"}) == "a=b\\\\c\nd=e\n"


def test_a_worker_is_told_its_node_and_the_secret_stays_out_of_files(tmp_path: Path) -> None:
    settled = Settled("mark", tmp_path, secret="hush" * 8)
    command = worker_command(settled, "b.1", 2, 1024, "spark://h:1")
    assert command[1:4] == ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
    assert command[-1] == "spark://h:1"
    text = (tmp_path / "conf" / "node-b_2e1.properties").read_text()
    assert "spark.worker.resource.node-b_2e1.amount=2\n" in text
    assert "spark.authenticate=true\n" in text
    assert "hush" not in text + " ".join(command)


def test_what_the_environment_says_about_other_sparks_is_left_out(tmp_path: Path) -> None:
    given_ = {"SPARK_WORKER_CORES": "1", "SPARK_CONF_DIR": "/x", "SPARK_LOCAL_DIRS": "/fast", "HOME": "/h"}
    made = daemons.environment(Settled("m", tmp_path), given_)
    assert "SPARK_WORKER_CORES" not in made
    assert made["SPARK_CONF_DIR"] == str(tmp_path / "conf")
    assert (made["SPARK_LOCAL_DIRS"], made["HOME"], made[MARK]) == ("/fast", "/h", "m")
    assert made["SPARK_LOCAL_IP"] == "127.0.0.1"
