"""A placed run on a cluster of this machine: what a hop takes, what it can do, what it costs, and changes of plan.

    ./run bench placed [--json] [--changes N] [--seconds S]

Two nodes of two slots, three operators that hand on what they get, each in a bundle and on a slot of its own: two
hops. Everything shares the machine's cores with whatever else runs here.

hop_ms_p50            from one bundle to the next at 1,000 tuples/s, linger not counted (it is spent before)
dict_tuples_per_s     as fast as it goes, code per row
columnar_rows_per_s   as fast as it goes, Arrow code
cores_at_1000         of executors, their workers, the driver and its Java process at 1,000 tuples/s, once all is warm
placed_over_fused     sustained rate of two operators that wait, placed against fused, same threads on the same slots
start_new_s           from a session to the first tuple at its end, executors started anew
start_warm_s          the same on executors that are there
change_new_s          from the request to the first tuple by the new plan, median of changes that need a new executor
change_warm_s         the same where executors are there
lost, doubled         over all of these runs, by their audits
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.base.files import write_text
from penstock.cluster.file import read_cluster
from penstock.cluster.topology import Slot
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed.engine import placed_session
from penstock.engines.placed.replacement import Threads, with_threads
from penstock.planning.files import SavedPlan
from penstock.spark.clusters.local.lifecycle import running_cluster
from penstock.spark.session.process_tree import java_started_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.report.result import PlacedResult
    from penstock.spark.clusters.local.state import RunningCluster

SCHEMA = "value bigint"
MORE_THAN_ANY = 8_000_000.0
CALM_SECONDS = 10.0
"""After so long Java has compiled what a start needs."""
WAIT_SECONDS, WAIT_THREADS = 0.02, 8
"""The operators that wait: 8 threads of 20 ms are 400 tuples/s."""


def same(row: Any) -> Any:
    return row


def wait(row: Any) -> Any:
    pause(WAIT_SECONDS)
    return row


def chain(per: Per, middle: int = 3, code: Any = same, threads: int = 1) -> Pipeline:
    names = ["source", *("first", "second", "third")[:middle], "sink"]
    operators = [
        Operator(name="source", kind=Kind.SOURCE),
        *(Operator(name=n, logic=Logic(code, per, SCHEMA), threads=threads, cpu=5, memory_mb=64) for n in names[1:-1]),
        Operator(name="sink", kind=Kind.SINK),
    ]
    return Pipeline.of("chain", operators, [Stream(sender=a, receiver=b) for a, b in pairwise(names)])


class Bench:
    def __init__(self, cluster: RunningCluster, folder: Path, session: Any, seconds: float) -> None:
        self.cluster, self.folder, self.session, self.seconds = cluster, folder, session, seconds
        self.results: list[PlacedResult] = []

    def plan(self, name: str, pipeline: Pipeline, where: Mapping[str, tuple[str, int]]) -> Path:
        """A plan by hand: which slot every operator is on."""
        machines = read_cluster(self.cluster.cluster_file)
        planned = penstock.plan(pipeline, 1000, cluster=self.cluster.cluster_file, placer="round-robin")
        threads: Threads = {}
        for operator, (node, number) in where.items():
            threads.setdefault(Slot(node, number), {})[operator] = pipeline.operators[operator].threads or 1
        saved = with_threads(SavedPlan.model_validate(planned.document()), threads, machines)
        write_text(self.folder / f"{name}.json", saved.model_dump_json())
        return self.folder / f"{name}.json"

    def run(self, plan: Path, pipeline: Pipeline, rate: float, name: str) -> PlacedResult:
        result = penstock.run(
            plan,
            rate,
            seconds=self.seconds,
            warm_up=self.seconds / 2,
            engine="placed",
            folder=self.folder / name,
            given=pipeline,
            session=self.session,
        )
        self.results.append(result)
        return result

    # What is measured.

    def throughput(self, plan: Path) -> dict[str, float]:
        return {
            name: self.run(plan, chain(per), MORE_THAN_ANY, name).report.sustained_rate
            for name, per in (("dict_tuples_per_s", Per.ROW), ("columnar_rows_per_s", Per.ARROW))
        }

    def flowing(self, plan: Path, name: str) -> penstock.Run:
        """Start a run at 1,000 tuples/s, and return it when rows flow."""
        handle = penstock.start(
            plan,
            1000.0,
            engine="placed",
            folder=self.folder / name,
            given=chain(Per.ROW),
            session=self.session,
            warm_up=1.0,
        )
        while handle.last_progress is None and not handle.await_termination(0.1):
            pass
        return handle

    def calm(self, plan: Path) -> dict[str, float]:
        """1,000 tuples/s; the driver's CPU is what this process and its Java process use while it flows."""
        handle = self.flowing(plan, "calm")
        pause(CALM_SECONDS)
        before, watch = cpu_of_driver(self.session), Stopwatch()
        pause(self.seconds)
        driver = (cpu_of_driver(self.session) - before) / watch.seconds()
        result = handle.stop()
        self.results.append(result)
        slots = sum(cpu for cpu, _ in result.report.slots.values())
        return {
            "hop_ms_p50": result.hop_ms["p50"],
            "hop_ms_p99": result.hop_ms["p99"],
            "latency_ms_p50": result.report.latency_ms["p50"],
            "cores_at_1000": slots + driver,
            "cores_of_slots": slots,
            "start_warm_s": result.start_seconds,
        }

    def changes(self, plans: list[Path], new: list[Path], times: int) -> dict[str, float]:
        """Ten changes in one run; `new` are plans whose slots had no executor before."""
        handle = self.flowing(plans[0], "changes")
        fresh = [handle.rescale(plan=plan) for plan in new]
        warm = []
        for number in range(times - len(new)):
            pause(1.0)
            warm.append(handle.rescale(plan=plans[number % len(plans)]))
        self.results.append(handle.stop())
        return {"change_new_s": statistics.median(fresh), "change_warm_s": statistics.median(warm)}

    def against_fused(self) -> dict[str, float]:
        """Two operators that wait, eight threads each, on two slots."""
        pipeline = chain(Per.ROW, 2, wait, WAIT_THREADS)
        where = {"source": ("n1", 0), "first": ("n1", 0), "second": ("n2", 0), "sink": ("n2", 0)}
        plan = self.plan("waiting", pipeline, where)
        offered = 1.5 * WAIT_THREADS / WAIT_SECONDS
        placed = self.run(plan, pipeline, offered, "waiting-placed").report.sustained_rate
        return {"placed_rate": placed}


def fused_rate(cluster: RunningCluster, seconds: float) -> float:
    pipeline = chain(Per.ROW, 2, wait, WAIT_THREADS)
    offered = 1.5 * WAIT_THREADS / WAIT_SECONDS
    secret = cluster.secret_file
    result = penstock.run(
        pipeline,
        offered,
        slots=2,
        seconds=seconds + 6,
        warm_up=seconds / 2 + 3,
        master=cluster.master_url,
        secret_file=secret,
    )
    return result.report.sustained_rate


def cpu_of_driver(session: Any) -> float:
    """Of this process and of the driver's Java process. Master, Workers and executors are this process's too, here."""
    return sum(sum(process.cpu_times()[:2]) for process in (psutil.Process(), java_started_here(session)))


def measure(folder: Path, changes: int, seconds: float) -> dict[str, Any]:
    apart = {"source": ("n1", 0), "first": ("n1", 0), "second": ("n1", 1), "third": ("n2", 0), "sink": ("n2", 0)}
    with running_cluster(2, 2, folder=folder / "cluster", memory_mb=768) as cluster:
        os.environ["PENSTOCK_STATE"] = str(cluster.folder)
        with placed_session("bench") as session:
            bench = Bench(cluster, folder, session, seconds)
            together = bench.plan("together", chain(Per.ROW), {**apart, "second": ("n1", 0)})
            spread = bench.plan("spread", chain(Per.ROW), apart)
            moved = bench.plan("moved", chain(Per.ROW), {**apart, "second": ("n2", 1)})
            first = bench.run(together, chain(Per.ROW), 1000.0, "first")
            found: dict[str, Any] = {"start_new_s": first.start_seconds}
            found |= bench.changes([together, spread, moved], [spread, moved], changes)
            found |= bench.calm(spread)
            found |= bench.throughput(spread)
            found |= bench.against_fused()
        found["fused_rate"] = fused_rate(cluster, seconds)
        found["placed_over_fused"] = found["placed_rate"] / found["fused_rate"] if found["fused_rate"] else 0.0
    audits = [result.report.audit for result in bench.results]
    found["lost"] = sum(audit.lost for audit in audits)
    found["doubled"] = sum(audit.duplicated for audit in audits)
    found["emitted"] = sum(audit.emitted for audit in audits)
    found["load_average"] = os.getloadavg()[1]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0, help="each of the measured runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        found = measure(Path(folder), options.changes, options.seconds)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        print(f"{name:24} {value:,.4g}")


if __name__ == "__main__":
    main()
