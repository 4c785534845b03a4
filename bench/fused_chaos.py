"""A fused run on a cluster of two nodes with two slots each: slots come and go while it flows, then its processes are
killed one after the other. What counts is read from the sinks afterwards.

    ./run bench fused_chaos [--json] [--jdbc URL --jar FILE]

Parquet is written in any case; a table too where a database is named (SQLite, PostgreSQL, ...) and the jar of its
driver. In order: 1 -> 4 -> 2 slots, kill -9 of a Python worker, of an executor, of the driver (and `resume`), SIGTERM.

    seconds_1_to_4, seconds_4_to_2             what each change took
    rate_1, rate_4, rate_2                     tuples/s into the sink with so many slots
    restarts                                   of the query, before the driver was killed
    lost, doubled; table_lost, table_doubled   in the sinks, of all that was emitted
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow.parquet as pq

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.base.files import temporary_folder
from penstock.spark.clusters.local.lifecycle import running_cluster
from penstock.spark.session.embedded import end_session, start_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PIPELINE = """
import time
import penstock

def wait(row):
    time.sleep(0.005)
    return row

pipeline = penstock.pipeline("chaos").source("load").then("wait", logic=wait, schema="value bigint")
pipeline.sink("store", reads="wait", format="parquet", options={{"path": "{out}"}})
if "{jdbc}":
    options = {{"url": "{jdbc}", "driver": "{driver}", "dbtable": "chaos_tuples"}}
    pipeline.sink("table", reads="wait", format="jdbc", options=options)
"""
"""A slot makes at most 200 calls a second, however fast its core is."""

DRIVERS = {"sqlite": "org.sqlite.JDBC", "postgresql": "org.postgresql.Driver"}
RATE = 2000
PATIENCE_SECONDS = 240.0
LOOK_SECONDS = 6.0


def rows_in(out: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in out.glob("part-*.parquet"))


def until(condition: Callable[[], bool], what: str) -> None:
    waited = Stopwatch()
    while not condition():
        if waited.seconds() > PATIENCE_SECONDS:
            sys.exit(f"{what} did not come about within {PATIENCE_SECONDS:g} s")
        pause(0.1)


class Run:
    """A process of `penstock`, and the files its run leaves."""

    def __init__(self, process: subprocess.Popen[str], out: Path) -> None:
        self.process = process
        self.out = out

    def flows(self, more: int) -> None:
        """Until so many more tuples are in the sink."""
        before = rows_in(self.out)
        until(lambda: rows_in(self.out) >= before + more or self.process.poll() is not None, f"{more} more tuples")
        if self.process.poll() is not None:
            sys.exit(f"the run ended: {self.process.communicate()[1]}")

    def rate(self) -> float:
        """Past some batches: slots that are new begin with workers that have loaded nothing yet."""
        self.flows(800)
        before, watch = rows_in(self.out), Stopwatch()
        pause(LOOK_SECONDS)
        self.flows(1)
        return (rows_in(self.out) - before) / watch.seconds()


@contextmanager
def penstock_process(environment: dict[str, str], out: Path, *words: str) -> Iterator[Run]:
    line = [sys.executable, "-P", "-m", "penstock", *words]
    process = subprocess.Popen(line, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield Run(process, out)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def processes_below(folder: Path, words: str) -> list[psutil.Process]:
    """Those a Worker of the cluster in `folder` started."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if words in " ".join(process.info["cmdline"] or ()) and str(process.info["cwd"]).startswith(str(folder))
    ]


def missing_and_doubled(values: Iterable[int], emitted: int) -> tuple[int, int]:
    seen = Counter(values)
    return sum(number not in seen for number in range(emitted)), sum(count - 1 for count in seen.values())


def driver_of(url: str) -> str:
    kind = url.removeprefix("jdbc:").partition(":")[0]
    if url and kind not in DRIVERS:
        sys.exit(f"--jdbc: expected one of {', '.join(DRIVERS)}, found '{kind}'")
    return DRIVERS.get(kind, "")


def read_table(url: str, jar: str) -> list[int]:
    with temporary_folder("read") as scratch:
        session = start_session(1, scratch / "java.log", warm=False, scratch=scratch, settings={"spark.jars": jar})
        try:
            options = {"url": url, "driver": driver_of(url), "dbtable": "chaos_tuples"}
            return [row["value"] for row in session.read.format("jdbc").options(**options).load().collect()]
        finally:
            end_session(session)


def chaos(folder: Path, jdbc: str, jar: str) -> dict[str, float]:
    out, run_folder = folder / "out", folder / "run"
    (folder / "chaos_pipeline.py").write_text(PIPELINE.format(out=out, jdbc=jdbc, driver=driver_of(jdbc)))
    os.environ.update(PENSTOCK_RUNS=str(folder / "runs"), PENSTOCK_STATE=str(folder / "state"))
    source = str(Path(penstock.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(folder)])}
    figures: dict[str, float] = {}
    words = ["--rate", str(RATE), "--master", "cluster", "--slots", "1", "--folder", str(run_folder)]
    if jar:
        words += ["--conf", f"spark.jars={jar}"]
    with running_cluster(2, 2, folder=folder / "state"):
        with penstock_process(environment, out, "run", "chaos_pipeline:pipeline", *words) as run:
            figures["rate_1"] = run.rate()
            figures["seconds_1_to_4"] = penstock.rescale(run_folder, 4)
            figures["rate_4"] = run.rate()
            figures["seconds_4_to_2"] = penstock.rescale(run_folder, 2)
            figures["rate_2"] = run.rate()
            workers = [p for p in processes_below(folder, "worker_daemon") if not p.children()]
            workers[0].kill()
            run.flows(400)
            processes_below(folder, "CoarseGrainedExecutorBackend")[0].kill()
            run.flows(400)
            figures["restarts"] = (run_folder / "log").read_text().count("started again")
            run.process.kill()
        with penstock_process(environment, out, "resume", str(run_folder), "--json") as resumed:
            resumed.flows(400)
            resumed.process.send_signal(signal.SIGTERM)
            printed, complained = resumed.process.communicate()
    if not printed:
        sys.exit(f"the resumed run did not report: {complained}")
    report = json.loads(printed)
    figures["emitted"] = report["emitted"]
    lost, doubled = missing_and_doubled(pq.read_table(out)["value"].to_pylist(), report["emitted"])
    figures |= {"lost": lost, "doubled": doubled, "lost_by_report": report["lost"]}
    if jdbc:
        lost, doubled = missing_and_doubled(read_table(jdbc, jar), report["emitted"])
        figures |= {"table_lost": lost, "table_doubled": doubled}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdbc", default="", help="URL of an empty database")
    parser.add_argument("--jar", default="", help="the jar of its driver")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with temporary_folder("chaos") as folder:
        figures = chaos(folder, given.jdbc, given.jar)
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:16} {value:,.2f}")


if __name__ == "__main__":
    main()
