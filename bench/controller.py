"""The controller under load: a pass over 200 pipelines and 2,000 nodes, and how soon HTTP answers meanwhile.

    ./run bench controller [--json] [--pipelines 200] [--nodes 2000]

`overhead_warm_s` and `overhead_new_s` are medians of O of ten priority changes each on Spark, with their stages: where
the pipeline goes on with executors it has, and where one is started for it. `pass_s_200x2000` is the median of ten
changes of a priority, each decided, written to the store and told to the (simulated) executors, `pass_cpu_s` its CPU
alone; `rest_ms_p99` is of reading single pipelines over HTTP while such changes go on, `list_ms_p50` of reading all of
them. `month_*` are memory, bytes and rows of the store over a simulated month.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.base import clock
from penstock.base.clock import Stopwatch, cpu_seconds, pause
from penstock.base.state_folder import state_folder
from penstock.control.controller import Controller
from penstock.control.core.messages import Amend, Kill, Submit
from penstock.control.core.records import ControllerState, Policy, ServiceTarget, Submission
from penstock.control.core.step import step
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.pipeline_document import described
from penstock.control.sizing import ModelSizing
from penstock.control.store.store import Store
from penstock.modelling.library import reference_library
from penstock.service.bodies import fingerprint
from penstock.service.client import Client, connect
from penstock.service.local import ServiceSettings, controller_folder, start_controller, stop_controller
from penstock.spark.clusters.local.guard import guarded
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHANGES = 10


def submission(number: int, desired: int) -> Submission:
    definition = described("linear")
    return Submission(
        f"p{number}",
        "linear",
        definition,
        fingerprint(definition),
        ServiceTarget(),
        desired=desired,
        priority=2 + number % 3,
        load="50",
    )


def made(folder: Path, nodes: int, clock: ManualClock) -> Controller:
    sizing = ModelSizing(reference_library(), 1)
    return Controller(
        Store(f"sqlite:///{folder / 'store.db'}"),
        SimulatedExecutors(sizing, 1),
        SimulatedNodes(nodes, 1),
        sizing,
        clock,
        ManualClock(0.0),
        ControllerState(policy=Policy()),
    )


def run_for(controller: Controller, clock: ManualClock, seconds: float, every: float) -> None:
    end = clock.time + seconds
    while clock.time < end:
        clock.time = min(end, clock.time + every)
        controller.look()


def passes(pipelines: int, nodes: int) -> tuple[list[float], list[float]]:
    """Seconds, and CPU seconds, of every change of a priority, all pipelines running and wanting more than there is."""
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(1000.0)
        controller = made(Path(folder), nodes, clock)
        controller.look()
        for number in range(pipelines):
            controller.ask(Submit(submission(number, desired=max(1, nodes * 6 // pipelines // 5))))
        run_for(controller, clock, 30, 0.5)
        found, used = [], []
        for number in range(CHANGES):
            watch, before = Stopwatch(), cpu_seconds()
            controller.ask(Amend(f"p{number}", priority=1))
            found.append(watch.seconds())
            used.append(cpu_seconds() - before)
            run_for(controller, clock, 5, 0.5)
        controller.close()
    return found, used


def submit_at_once(folder: str | Path, submissions: Sequence[Submission], nodes: SimulatedNodes) -> None:
    """As an earlier controller of the folder left them: one by one over HTTP takes a pass each."""
    now = clock.now()
    store = Store(f"sqlite:///{controller_folder(state_folder(folder)) / 'store.db'}")
    lease, before = store.take_lease(now), ControllerState()
    happened = [*nodes.observe(now), *map(Submit, submissions)]
    store.commit(before, step(before, happened, now, ModelSizing(reference_library(), 1)), lease, now)
    store.give_back(lease)
    store.close()


def answers(pipelines: int, nodes: int, requests: int) -> tuple[list[float], list[float], int]:
    """Milliseconds of reading one pipeline, and all, over HTTP while priorities change; and how many changed."""
    with tempfile.TemporaryDirectory() as folder:
        desired = max(1, nodes * 6 // pipelines // 5)
        submissions = [submission(number, desired) for number in range(pipelines)]
        submit_at_once(folder, submissions, SimulatedNodes(nodes, 1))
        start_controller(ServiceSettings(nodes=nodes, speed=1.0), folder)
        done = threading.Event()
        changes = 0

        def change() -> None:
            nonlocal changes
            with connect(folder=folder) as client:
                while not done.is_set():
                    client.priority(f"p{changes % pipelines}", 1 + changes % 4)
                    changes += 1

        try:
            with connect(folder=folder) as client:
                while any(row["state"] != "active" for row in client.list()):
                    pause(0.5)
                changing = threading.Thread(target=change)
                changing.start()
                one, everything = [], []
                for number in range(requests):
                    watch = Stopwatch()
                    client.show(f"p{number % pipelines}")
                    one.append(1000 * watch.seconds())
                    if number % 50 == 0:
                        watch = Stopwatch()
                        client.list()
                        everything.append(1000 * watch.seconds())
                done.set()
                changing.join()
        finally:
            stop_controller(folder)
    return one, everything, changes


def month(days: int) -> dict[str, float]:
    """Days of ten pipelines on 40 nodes in looks five minutes apart: every hour one changes its priority, one is killed
    and another comes, every six hours a node comes and one goes; then two hours in looks ten seconds apart, which is
    how often readings are kept. What memory and store come to is printed every five days."""
    with tempfile.TemporaryDirectory() as folder:
        clock, watch = ManualClock(1000.0), Stopwatch()
        controller = made(Path(folder), 40, clock)
        controller.look()
        for number in range(10):
            controller.ask(Submit(submission(number, desired=6)))
        figures: dict[str, float] = {}
        for hour in range(24 * days):
            controller.ask(Amend(f"p{hour + 5}", priority=1 + hour % 4))
            controller.ask(Kill(f"p{hour}"))
            controller.ask(Submit(submission(hour + 10, desired=6)))
            if hour % 6 == 0:
                controller.add_nodes(1)
                controller.release_node(f"n{1 + hour // 6}")
            run_for(controller, clock, 3600, 300)
            if hour % 120 == 119:
                figures |= _sizes(controller, Path(folder), f"month_day_{(hour + 1) // 24}", watch)
        run_for(controller, clock, 7200, 10)
        figures |= _sizes(controller, Path(folder), "month_end", watch)
        controller.close()
    return figures


TABLES = ("pipelines", "submissions", "nodes", "holdings", "events", "decisions", "passes", "metrics")


def _sizes(controller: Controller, folder: Path, when: str, watch: Stopwatch) -> dict[str, float]:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    rows = {name: controller.store.count(name) for name in TABLES}
    figures = {
        f"{when}_rss_mb": resident,
        f"{when}_store_mb": sum(path.stat().st_size for path in folder.glob("store.db*")) / 2**20,
        f"{when}_rows": float(sum(rows.values())),
    }
    counts = ", ".join(f"{name} {count:,}" for name, count in rows.items())
    print(f"{when} after {watch.seconds():.0f} s: {figures}; {counts}", file=sys.stderr, flush=True)
    return figures


def overheads(changes: int) -> dict[str, float]:
    """O of priority changes on Spark: two fused pipelines that desire two of three slots each, one raised and lowered
    again and again. Raised it gets an executor that is started for it, after the other has let one go; lowered it goes
    on with one it has."""
    stages: dict[str, list[dict[str, float]]] = {"new": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder, _cluster(folder), connect(folder=folder) as client:
        for name in ("a", "b"):
            client.submit(name, PIPELINE, desired=2, load="50")
        _await(client, a=2, b=1)
        for number in range(2 * changes):
            raised = number % 2 == 0
            client.priority("b", 1 if raised else 2)
            _await(client, a=1 if raised else 2, b=2 if raised else 1)
            kind, row = "new" if raised else "warm", _overhead(client)
            stages[kind].append(row)
            shown = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in row.items())
            print(f"{kind}: {shown}", file=sys.stderr, flush=True)
    found: dict[str, float] = {}
    for kind, rows in stages.items():
        totals = [row["total_s"] for row in rows]
        found[f"overhead_{kind}_s"] = statistics.median(totals)
        found[f"overhead_{kind}_s_lowest"] = min(totals)
        found[f"overhead_{kind}_s_highest"] = max(totals)
        for stage in ("drained_s", "placed_s", "first_tuple_s"):
            found[f"overhead_{kind}_{stage}"] = statistics.median(row[stage] for row in rows)
    return found


@contextmanager
def _cluster(folder: str) -> Iterator[None]:
    """Three nodes and a controller, which end with the block, or with the process."""
    with guarded([sys.executable, "-P", "-c", f"import penstock; penstock.down({folder!r})"]):
        penstock.up(nodes=3, slots=1, policy="dynamic-priority", folder=folder)
        try:
            yield
        finally:
            penstock.down(folder)


PIPELINE = {
    "name": "counting",
    "operators": {"orders": {"kind": "source"}, "parse_xml": {}, "store": {"kind": "sink"}},
    "streams": [{"from": "orders", "to": "parse_xml"}, {"from": "parse_xml", "to": "store"}],
}
"""With the cheapest reference task."""


def _await(client: Client, **shares: int) -> None:
    watch = Stopwatch()
    while {row["name"]: row["held"] for row in client.list() if row["state"] == "active"} != shares:
        if watch.seconds() > 120:
            raise SystemExit(f"shares of {shares} did not come: {client.list()}")
        pause(0.1)


def _overhead(client: Client) -> dict[str, float]:
    watch = Stopwatch()
    while True:
        last = [row for row in client.decisions("b") if row["kind"] == "priority"][-1]
        if last["overhead"]:
            found: dict[str, float] = last["overhead"]
            return found
        if watch.seconds() > 60:
            raise SystemExit("no tuple came on the new share within a minute")
        pause(0.1)


def under_load(pipelines: int, nodes: int, requests: int) -> dict[str, float]:
    seconds, used = passes(pipelines, nodes)
    one, everything, changes = answers(pipelines, nodes, requests)
    return {
        f"pass_s_{pipelines}x{nodes}": statistics.median(seconds),
        "pass_s_longest": max(seconds),
        "pass_cpu_s": statistics.median(used),
        "rest_ms_p50": statistics.median(one),
        "rest_ms_p99": statistics.quantiles(one, n=100)[98],
        "list_ms_p50": statistics.median(everything),
        "changes_meanwhile": changes,
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--pipelines", type=int, default=200)
    arguments.add_argument("--nodes", type=int, default=2000)
    arguments.add_argument("--changes", type=int, default=10, help="of a priority on Spark, each way; 0: no Spark")
    arguments.add_argument("--days", type=int, default=30, help="of the simulated month; 0: leave it out")
    arguments.add_argument("--requests", type=int, default=1000, help="over HTTP while priorities change")
    arguments.add_argument("--no-load", action="store_true", help="leave passes and answers under load out")
    asked = arguments.parse_args()
    found: dict[str, float] = {}
    if not asked.no_load:
        found |= under_load(asked.pipelines, asked.nodes, asked.requests)
    if asked.days:
        found |= month(asked.days)
    if asked.changes:
        found |= overheads(asked.changes)
    if asked.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:<24}{value:,.3f}")
        print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
