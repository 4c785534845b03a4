"""A standalone cluster whose Workers Penstock did not start: no numbered slots, but cores, memory and holders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds import until

from penstock.base.errors import BadInputError
from penstock.base.processes import LOOPBACK, end, free_port, marked, start
from penstock.cluster.contract import AcquisitionState, AppRequest, NodeState, SlotRequest, open_cluster
from penstock.cluster.topology import Slot
from penstock.spark.clusters.standalone.cluster import StandaloneCluster, workers_by_node
from penstock.spark.clusters.standalone.daemons import ClusterEnvironment, master_command, own_environment
from penstock.spark.clusters.standalone.master_page import fetch_page, listed_executors, parse_page
from penstock.spark.session.java import spark_home


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    folder = tmp_path_factory.mktemp("plain")
    settled = ClusterEnvironment("plain-workers", folder)
    environment, web_port = own_environment(settled), free_port()
    web_url = f"http://{LOOPBACK}:{web_port}"
    try:
        start(master_command(settled, 0, web_port), environment, folder / "master.log")
        until(lambda: (page := fetch_page(web_url)) is not None and page.status == "ALIVE")
        page = fetch_page(web_url)
        assert page is not None
        worker = [str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker"]
        size = ["--host", LOOPBACK, "--cores", "2", "--memory", "1200M", "--work-dir", str(folder / "work")]
        start([*worker, *size, page.url], environment, folder / "worker.log")
        made = StandaloneCluster(page.url, web_url=web_url, racks={LOOPBACK: "left"})
        until(made.nodes)
        yield made
    finally:
        end(marked(settled.mark))


def test_nodes_are_hosts_with_cores_and_memory_and_executors_go_anywhere(cluster: StandaloneCluster) -> None:
    # 2 cores are 200 points
    amounts = {"cpu": 200, "memory_mb": 1200}
    assert cluster.nodes() == [NodeState(LOOPBACK, True, LOOPBACK, "left", None, amounts, amounts)]
    assert (cluster.pins, cluster.topology(), cluster.holdings()) == (False, None, {})
    with pytest.raises(BadInputError, match="do not offer slots by name"):
        cluster.session(AppRequest("pinned", pinned=True))
    with cluster.session(AppRequest("plain", executors=1, memory_mb=512)) as app:
        app.executors.wait_for(1)
        until(cluster.holdings)
        first = Slot(LOOPBACK, 0)
        assert [(slot, holder.name, holder.memory_mb) for slot, holder in (cluster.holdings() or {}).items()] == [
            (first, "plain", 512)
        ]
        assert (cluster.nodes() or ())[0].free == {"cpu": 100, "memory_mb": 688}
        with pytest.raises(BadInputError, match=r"executor on 127\.0\.0\.1: application 'app.*' was not started with"):
            cluster.acquire(app.id, [SlotRequest(LOOPBACK)])
        second = cluster.acquire(app.id, [SlotRequest()])
        assert second.result() == (Slot(LOOPBACK, 1),)
        # two executors of 512 MB and one core are all this Worker has
        third = cluster.acquire(app.id, [SlotRequest()], deadline=3)
        assert not third.wait()
        assert third.state is AcquisitionState.EXPIRED
        cluster.release(app.id, [first])
        until(lambda: set(cluster.holdings() or {}) == {Slot(LOOPBACK, 1)})
    until(lambda: cluster.holdings() == {})


def test_two_workers_of_one_host_have_names_of_their_own() -> None:
    workers = [
        {"id": f"w{port}", "host": "h", "port": port, "state": state, "lastheartbeat": port}
        for port, state in ((1, "ALIVE"), (2, "ALIVE"), (3, "DEAD"))
    ]
    page = parse_page(json.dumps({"url": "spark://m:1", "status": "ALIVE", "workers": workers, "activeapps": []}))
    assert {name: worker.state for name, worker in workers_by_node(page).items()} == {
        "h:1": "ALIVE",
        "h:2": "ALIVE",
        "h:3": "DEAD",
    }


def executor_row(name: str, resources: str, state: str = "RUNNING") -> str:
    cells = [name, "<a href='http://h'>worker-1</a>", "1", "512", "0", resources, state, "<a>stdout</a>"]
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def holdings_of(tmp_path: Path, rows: str) -> dict[Slot, str]:
    """By slot: the executor, of one application on a node of two slots."""

    class Answering(StandaloneCluster):
        def _page(self):  # type: ignore[no-untyped-def]
            slots = {"slot": {"addresses": ["n1/0", "n1/1"]}}
            worker = {"id": "worker-1", "host": "h", "state": "ALIVE", "lastheartbeat": 1, "resources": slots}
            apps = [{"id": "app-1", "name": "one", "state": "RUNNING"}]
            return parse_page(
                json.dumps({"url": "spark://m:1", "status": "ALIVE", "workers": [worker], "activeapps": apps})
            )

        def _application_pages(self, page):  # type: ignore[no-untyped-def]
            return {"app-1": rows}

    return {slot: str(holder.executor) for slot, holder in (Answering("spark://m:1").holdings() or {}).items()}


@pytest.mark.parametrize(
    ("rows", "held"),
    [
        # by the number it asked for, not by the unit of `slot` it was given
        (executor_row("0", "slot: [n1/0], slot-1-n1: [n1/1]"), {Slot("n1", 1): "0"}),
        # by its unit
        (executor_row("0", "slot: [n1/1]"), {Slot("n1", 1): "0"}),
        # its unit is the number that another one asked for: it is on the other slot
        (
            executor_row("0", "slot: [n1/1]") + executor_row("1", "slot: [n1/0], slot-1-n1: [n1/1]"),
            {Slot("n1", 0): "0", Slot("n1", 1): "1"},
        ),
        # one that has ended holds nothing
        (executor_row("0", "slot: [n1/1]", "KILLED"), {}),
        # without a slot it is counted on its node all the same
        (executor_row("0", ""), {Slot("n1", 0): "0"}),
    ],
)
def test_holders_are_read_from_the_page_of_an_application(tmp_path: Path, rows: str, held: dict[Slot, str]) -> None:
    assert holdings_of(tmp_path, rows) == held


def test_the_head_of_the_table_is_no_executor() -> None:
    assert list(listed_executors("<tr><th>ExecutorID</th></tr><tr><td>name</td></tr>")) == []


def test_a_master_that_does_not_answer_is_not_a_cluster_without_nodes(tmp_path: Path) -> None:

    silent = open_cluster("spark://127.0.0.1:1", folder=tmp_path, web_url="http://127.0.0.1:9")
    assert (silent.nodes(), silent.holdings(), silent.topology(), silent.pins) == (None, None, None, False)
