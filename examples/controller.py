"""A day of a controller in seven minutes, on a Spark cluster of this machine: python examples/controller.py

Three pipelines share four slots: one fused, one placed, one with an aggregation. The data of the first raises its
priority; a node comes, a node dies, a driver dies, a pipeline is killed, the controller dies. At the end every tuple is
looked for in the files of the sinks: none is lost, none is there twice.

The pipelines are in this module too: the controller imports it by the name `controller`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyarrow import dataset

import penstock
from penstock.control.executors.driver_files import DRIVER, DriverProcess, get
from penstock.service.local import read_running
from penstock.spark.clusters.local.lifecycle import cluster_status, kill_worker

OUT = os.environ.get("PENSTOCK_EXAMPLE_OUT", "out")
DEAR_FROM = 1500
"""From this tuple on most orders are dear: what the trigger waits for."""


def price(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": row["value"], "cents": 900 if row["value"] >= DEAR_FROM else 100}


def shop(name: str) -> penstock.Pipeline:
    made = penstock.pipeline(name)
    made.source("orders")
    made.then("price", reads="orders", logic=price, schema="value long, cents long")
    made.sink("store", reads="price", format="parquet", options={"path": f"{OUT}/{name}"})
    return made.build()


def counting() -> penstock.Pipeline:
    """Orders of each of ten customers, told with every change."""
    made = penstock.pipeline("counted")
    made.source("orders")
    made.then("customer", reads="orders", logic=lambda row: {"customer": row["value"] % 10}, schema="customer bigint")
    made.then("count", aggregate={"key": "customer", "outputs": {"n": "count"}, "fields": "customer bigint"})
    made.sink("store", format="parquet", options={"path": f"{OUT}/counted"})
    return made.build()


fused, placed, counted = shop("fused"), shop("placed"), counting()


def until(what: str, true: Any, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not come true within {seconds:g} s")
        time.sleep(0.3)


def rows(name: str, *columns: str) -> list[tuple[Any, ...]]:
    """All that stands in the files of a sink."""
    folder = Path(OUT) / name
    if not folder.is_dir():
        return []
    table = dataset.dataset(str(folder), format="parquet", exclude_invalid_files=True).to_table(columns=list(columns))
    return list(zip(*(table.column(column).to_pylist() for column in columns), strict=True))


def lost_and_doubled(name: str) -> tuple[int, int, int]:
    """Tuples are numbered from 0: how many came, how many below the last are missing, how many came more than once."""
    values = Counter(value for (value,) in rows(name, "value"))
    last = max(values, default=-1)
    return len(values), last + 1 - len(values), sum(count - 1 for count in values.values())


def wrong_counts() -> tuple[int, int]:
    """Orders that were counted, and customers with a count that no number of orders gives.

    Of the orders 0 to N-1 customer k has ceil((N - k) / 10): N is the sum of all counts.
    """
    counts: dict[int, int] = {}
    for customer, number in rows("counted", "customer", "n"):
        counts[customer] = max(counts.get(customer, 0), number)
    total = sum(counts.values())
    return total, sum(counts.get(customer, 0) != -(-(total - customer) // 10) for customer in range(min(10, total)))


class Day:
    """What happens, and what the shares must be then by dynamic-priority."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.client: Any = None

    def held(self) -> dict[str, int]:
        return {one["name"]: one["held"] for one in self.client.list() if one["state"] == "active"}

    def await_shares(self, what: str, **shares: int) -> None:
        began = time.monotonic()
        until(f"{what}: {shares}", lambda: self.held() == shares)
        self.check_with_the_master(what)
        print(f"{time.monotonic() - began:5.1f} s  {what}: {shares}", flush=True)

    def check_with_the_master(self, what: str) -> None:
        """No node has more or fewer executors than the controller says."""

        def agree() -> bool:
            books = Counter(node for one in self.client.list() for node, _ in one["slots"])
            nodes = [node for node in cluster_status(self.state).nodes if node.alive]
            return all(node.used == books[node.name] for node in nodes)

        until(f"{what}: the Master agrees", agree, 30)

    def up(self) -> None:
        began = time.monotonic()
        penstock.up(nodes=2, slots=2, unit_slots=1, policy="dynamic-priority", folder=self.state)
        self.leave()
        self.client = penstock.connect(folder=self.state)
        print(f"{time.monotonic() - began:5.1f} s  up", flush=True)

    def leave(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def driver(self, name: str) -> int:
        process = get(DriverProcess, self.state / "controller" / "pipelines" / name, DRIVER)
        if process is None:
            raise SystemExit(f"'{name}' has no driver")
        return int(process.pid)

    def live(self) -> None:
        self.up()
        client = self.client
        client.submit("fused", "controller:fused", desired=2, load="60")
        client.submit("placed", "controller:placed", desired=2, load="60", engine="placed")
        client.submit("counted", "controller:counted", desired=1, load="60")
        client.trigger("fused", "batch-share", field="cents", above=500, share=0.8, for_seconds=1)
        # 4 slots for 2, 2 and 1: round(4 * 2 / 5) = 2 for the first two, and nothing is left
        self.await_shares("two of three fit", fused=2, placed=2)
        print("         counted waits:", client.show("counted")["waiting"])
        # level 1 takes all it desires; the 2 that are left go to 2 and 1 in proportion: round(2 * 2 / 3) = 1, and 1
        self.await_shares("its own data raises the first", fused=2, placed=1, counted=1)
        client.add_nodes(1)
        self.await_shares("a node more", fused=2, placed=2, counted=1)
        self.kill(self.driver("fused"))
        until("the death is seen", lambda: client.show("fused")["deaths"] == 1)
        self.await_shares("a driver was killed", fused=2, placed=2, counted=1)
        kill_worker("n2", self.state)
        until("its loss is seen", lambda: [n["state"] for n in client.nodes() if n["name"] == "n2"] == ["lost"])
        self.await_shares("a node was killed", fused=2, placed=1, counted=1)
        client.pause("counted")
        until("it is drained", lambda: client.show("counted")["state"] == "paused")
        client.kill("counted")
        self.await_shares("one was killed", fused=2, placed=2)
        running = read_running(self.state / "controller")
        if running is not None:
            self.kill(running.pid)
        before = len(rows("fused", "value"))
        until("pipelines flow without a controller", lambda: len(rows("fused", "value")) > before)
        self.up()
        self.await_shares("another controller goes on", fused=2, placed=2)
        for name in ("fused", "placed"):
            self.client.pause(name)
        until("all are drained", lambda: {one["state"] for one in self.client.list()} == {"paused", "killed"})

    def explain(self) -> None:
        for row in self.client.decisions():
            took = "" if row["overhead"] is None else f" ({row['overhead']['total_s']:.1f} s)"
            print(f"  {row['pipeline'] or 'all'}: {row['kind']} {row['from']} -> {row['to']}{took}: {row['why']}")


def main(state: Path) -> dict[str, tuple[int, int, int]]:
    day = Day(state)
    try:
        day.live()
        day.explain()
    finally:
        day.leave()
        penstock.down(state)
    results = {name: lost_and_doubled(name) for name in ("fused", "placed")}
    for name, (came, lost, doubled) in results.items():
        print(f"{name}: {came:,} tuples, {lost} lost, {doubled} doubled")
    total, wrong = wrong_counts()
    print(f"counted: {total:,} tuples, {wrong} customers with a wrong count")
    return {**results, "counted": (total, wrong, 0)}


if __name__ == "__main__":
    # drivers and workers import the pipelines from here
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    os.environ["PENSTOCK_EXAMPLE_OUT"] = str(Path(OUT).absolute())
    found = main(Path("controller-example").absolute())
    sys.exit(1 if any(lost or doubled for _, lost, doubled in found.values()) else 0)
