"""What the placed engine itself costs: three bundles, two hops, plain processes in place of Spark's tasks.

python bench/flow.py [--json] [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from penstock.base.clock import Stopwatch, now
from penstock.base.errors import RunError
from penstock.cluster.topology import Slot
from penstock.connectors.checkpoint import FolderCheckpoint
from penstock.connectors.commit import Commit
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed.bundle_plan import Code, LaidOut, lay_out
from penstock.engines.placed.conductor import Conductor, ConductorSetting
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.launchers import LocalLauncher
from penstock.runtime.account import Histogram

NAMES = ("source", "first", "second", "third", "sink")
SEGMENTS = [("source", "first"), ("second",), ("third", "sink")]
WARM_UP = 4.0


def same(rows: Any) -> Any:
    return rows


def chain(per: Per) -> LaidOut:
    code = Logic(same, per)
    operators = [
        Operator(name="source", kind=Kind.SOURCE),
        *(Operator(name=name, logic=code) for name in NAMES[1:-1]),
        Operator(name="sink", kind=Kind.SINK),
    ]
    pipeline = Pipeline.of("chain", operators, [Stream(sender=a, receiver=b) for a, b in pairwise(NAMES)])
    logic = dict.fromkeys(NAMES[1:-1], code)
    schema = pa.schema([("value", pa.int64())])
    threads = {Slot("n", number): dict.fromkeys(segment, 1) for number, segment in enumerate(SEGMENTS)}
    made = Code(pipeline, logic, dict.fromkeys(logic, schema), {})
    return lay_out(made, SEGMENTS, threads, lambda _, count: float(count), "plan")


def nowhere(_: object) -> LaidOut:
    raise RunError("there is no other slot")


def measure(per: Per, rate: float, seconds: float, folder: Path) -> dict[str, float]:
    checkpoint = FolderCheckpoint(folder)
    checkpoint.create()
    commit = checkpoint.take_over(Commit(run="flow", conductor=0, generation=0, epoch=0, plan="plan"), "plan")
    launcher = LocalLauncher()
    run = Conductor(
        ConductorSetting("flow", checkpoint, "127.0.0.1", Load.constant(rate), 0.0, nowhere),
        launcher,
        chain(per),
        commit,
    )
    try:
        asked = now()
        while run.run.state is not FlowState.FLOWING:
            run.turn()
        start = now() - asked
        turn(run, WARM_UP)
        first, skipped, cpu, watch = run.done[-1], len(run.done), cpu_of(launcher), Stopwatch()
        turn(run, seconds)
        used = (cpu_of(launcher) - cpu) / watch.seconds()
        hops, latency = Histogram(), Histogram()
        for done in list(run.done)[skipped:]:
            for part in done.parts:
                hops.merge(Histogram.of(part.hops))
                for found in part.account.latency.values():
                    latency.merge(found)
        last = run.done[-1]
    finally:
        run.close()
        launcher.close()
    return {
        "tuples_per_s": (last.offset - first.offset) / (last.finished - first.finished),
        "hop_ms_p50": 1000 * (hops.quantile(0.5) or 0.0),
        "latency_ms_p50": 1000 * (latency.quantile(0.5) or 0.0),
        "cores": used,
        "start_s": start,
    }


def turn(run: Conductor, seconds: float) -> None:
    watch = Stopwatch()
    while watch.seconds() < seconds:
        run.turn()


def cpu_of(launcher: LocalLauncher) -> float:
    return sum(sum(psutil.Process(process.pid).cpu_times()[:2]) for process in launcher.processes.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    found = {}
    for name, per, rate in (("calm", Per.ROW, 1e3), ("dict", Per.ROW, 3e6), ("columnar", Per.ARROW, 2e7)):
        with tempfile.TemporaryDirectory(prefix="penstock-flow-") as folder:
            found[name] = measure(per, rate, options.seconds, Path(folder))
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, row in found.items():
        print(f"{name:10}", ", ".join(f"{what} {value:,.4g}" for what, value in row.items()))


if __name__ == "__main__":
    main()
