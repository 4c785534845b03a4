"""What Penstock's machinery costs.

    python bench/overhead.py [--rounds N] [--seconds S] [--skip-placed]

Fused: parse XML, pi and table query as one pipeline against the same code called in a plain loop inside one
`mapInPandas`, fed by the same source with the same batches; both are offered more than they can do, in turns, in one
session. Placed: a chain of three operators that do nothing, on a cluster of two nodes started for it: how long a hop
takes and how many micro-batches a second the application does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.clock import Stopwatch, now, pause
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.segmentation.on_slots import segments_on_slots
from penstock.spark import load_source
from penstock.spark.bundles import make_bundles
from penstock.spark.cluster_session import start_cluster_session
from penstock.spark.fused import FusedRun, run_fused
from penstock.spark.placed_run import PlacedRun, PlacedSetup
from penstock.spark.session import embedded_session, end_session
from penstock.spark.standalone import running_cluster
from penstock.workloads.operators import reference_logic, services

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd
    from pyspark.sql import SparkSession

CHAIN = ("parse_xml", "pi", "azure_table")
SLOTS = 1
MORE_THAN_ANY = 1e6
BATCH_ROWS = 2500
"""About a second of work."""


def by_hand(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """What one would write without Penstock: open once per task, loop over the rows, build a frame of the results."""
    import pandas as pd  # noqa: PLC0415 - in the worker

    codes = [reference_logic[name] for name in CHAIN]
    opened = [(code.function, () if code.open is None else (code.open(),)) for code in codes]
    for frame in frames:
        results = []
        for value in frame["value"].to_list():
            row: dict[str, Any] = {"value": value}
            for function, arguments in opened:
                row = function(row, *arguments)
            results.append(row["value"])
        yield pd.DataFrame({"id": frame["id"], "value": results})


def hand_written_rate(session: SparkSession, environment: Mapping[str, str], seconds: float) -> float:
    """Tuples/s over whole batches past a third of the time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load_source.bound_batches(folder, BATCH_ROWS)
        session.dataSource.register(load_source.LoadSource)
        options = load_source.options(Load.constant(MORE_THAN_ANY), SLOTS, folder)
        frame = session.readStream.format(load_source.NAME).options(**options).load()
        query = (
            frame.mapInPandas(WithEnvironment(dict(environment)), "id bigint, value bigint")
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            while "Waiting" not in query.status["message"]:
                pause(0.05)
            load_source.begin(folder)
            finished: dict[int, float] = {}
            since = Stopwatch()
            while since.seconds() < seconds:
                pause(0.02)
                last = query.lastProgress
                if last is not None and last["numInputRows"]:
                    finished.setdefault(last["batchId"], now())
        finally:
            query.stop()
    times = sorted(finished.values())
    warm = [time for time in times if time > times[0] + seconds / 3]
    return BATCH_ROWS * (len(warm) - 1) / (warm[-1] - warm[0])


class WithEnvironment:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def __call__(self, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import os  # noqa: PLC0415 - in the worker

        os.environ.update(self._environment)
        return by_hand(frames)


def fused_rate(session: SparkSession, environment: Mapping[str, str], seconds: float) -> float:
    built = penstock.pipeline("chain").source("source")
    for name in CHAIN:
        built = built.then(name, model=name)
    run = FusedRun(
        built.sink("sink").build(),
        {name: reference_logic[name] for name in CHAIN},
        dict.fromkeys(CHAIN, 1),
        Load.constant(MORE_THAN_ANY),
        SLOTS,
        BATCH_ROWS,
        environment=environment,
    )
    report = run_fused(session, run, seconds, warm_up=seconds / 3)
    if report.audit.lost or report.audit.duplicated:
        sys.exit(f"lost {report.audit.lost}, duplicated {report.audit.duplicated}")
    return report.sustained_rate


def compare_fused(rounds: int, seconds: float) -> None:
    with services(CHAIN) as environment, embedded_session(SLOTS) as session:
        ratios = []
        for number in range(rounds):
            hand = hand_written_rate(session, environment, seconds)
            fused = fused_rate(session, environment, seconds)
            ratios.append(fused / hand)
            print(f"round {number + 1}: by hand {hand:,.0f}, fused {fused:,.0f} tuples/s, ratio {fused / hand:.3f}")
    print(f"fused / by hand in one mapInPandas: median {statistics.median(ratios):.3f} of {rounds} (wanted: 0.95)")


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def look_at_hops(seconds: float, rate: float) -> None:
    chain = penstock.pipeline("hops").source("source").then("a").then("b").then("c").sink("sink").build()
    load = Load.constant(rate)
    threads = {
        Slot("n1", 0): {"source": 1, "a": 1},
        Slot("n2", 0): {"b": 1},
        Slot("n1", 1): {"c": 1, "sink": 1},
    }
    with tempfile.TemporaryDirectory() as name, running_cluster(2, 2, folder=Path(name) / "c", memory_mb=768) as there:
        folder = Path(name)
        session = start_cluster_session(there.master_url, folder / "java.log", "hops", there.session_settings())
        try:
            wanted = penstock.segments(chain, segmenter="ends").segments
            segments = segments_on_slots(chain, wanted, threads)
            logic = {name: Logic(same) for name in "abc"}
            bundles = make_bundles(chain, logic, threads, load, lambda _, n: float(n), segments=segments)
            setup = PlacedSetup(folder / "run", load, {}, lambda _: int(rate), interval_ms=200)
            run = PlacedRun(session, setup, bundles)
            run.start()
            run.begin()
            run.watch(seconds)
            held, backlog = now(), run.dispatcher.backlog
            drained = run.drain()
            report = run.report(held, seconds / 3, backlog)
            run.stop()
        finally:
            end_session(session)
    way = report.latency_ms["p50"]
    print(
        f"placed chain of {len(bundles)} bundles at {rate:,.0f} tuples/s: {way / (len(bundles) - 1):,.0f} ms per hop "
        f"(p50 of the whole way {way:,.0f} ms), {report.batches / report.seconds:.1f} micro-batches/s, "
        f"drained in {drained:.1f} s, lost {report.audit.lost}, duplicated {report.audit.duplicated}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--skip-placed", action="store_true")
    parser.add_argument("--skip-fused", action="store_true")
    given = parser.parse_args()
    if not given.skip_fused:
        compare_fused(given.rounds, given.seconds)
    if not given.skip_placed:
        for rate in (1000.0, 10_000.0):
            look_at_hops(given.seconds, rate)


if __name__ == "__main__":
    main()
