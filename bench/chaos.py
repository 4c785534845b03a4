"""Everything that can go wrong with a placed run, at random moments under load; the sinks' own files are counted.

    ./run bench chaos --minutes 5 [--json] [--seed N] [--faults N] [--together FILE] [--spark [--namespaces]]

A run is conducted by a process of its own; this one hurts it, and looks only at its files. Its code answers differently
whenever it is run again, and every tuple takes two ways to the sink. Without --spark bundles are plain processes
(`penstock.engines.placed.launchers`): faults come every few seconds. With --spark they are tasks of Spark on a
cluster of two nodes, and with --namespaces (root) nodes and driver are hosts with links that can be cut.

Faults, where the harness has them: a bundle's process, an executor or all of a node is killed (-9), or stopped and goes
on later; the conductor is killed, or stopped until another has taken over, or a second one starts beside it; the disk
is full for a while; files of the run are cut short; links are cut; another plan is asked for. A fault is over when two
more epochs are committed; where another conductor was hired, two of its own. With --together every run is added to a
file, and the figures are those of all in it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow.dataset as ds

from chaos_figures import figures_of
from chaos_run import conduct_locally, conduct_on_spark, plan_names
from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import PenstockError
from penstock.base.processes import tree
from penstock.connectors.checkpoint import FolderCheckpoint
from penstock.engines.placed.run_folder import RunFolder, RunRequest
from penstock.spark.clusters.local.lifecycle import kill_worker, running_cluster, start_worker
from penstock.spark.clusters.local.namespaces import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.commit import Commit
    from penstock.spark.clusters.local.state import RunningCluster

LONGEST_RECOVERY = 120.0
DISK_MB = 96
WORKER_DAEMON = "penstock.engines.placed.bundle.worker_daemon"


class Chaos:
    """One run, and whoever conducts it now; those that were replaced go on until they find out."""

    def __init__(self, folder: Path, seed: int, cluster: RunningCluster | None) -> None:
        self.folder, self.cluster = folder, cluster
        self.dice = random.Random(seed)  # noqa: S311 - dice
        self.run = RunFolder(folder / "run")
        self.checkpoint = FolderCheckpoint(folder / "run")
        self.faults: Counter[str] = Counter()
        self.recoveries: list[tuple[str, float]] = []
        self.conductors: list[subprocess.Popen[bytes]] = []
        self._later: list[tuple[Stopwatch, float, Callable[[], None]]] = []
        self._disk_is_own = cluster is None and _mounted(folder)
        self.hire()

    # Conductors.

    def hire(self) -> None:
        """Another process conducts the run, from its last commit; whoever did is not asked."""
        how = "--conduct" if self.cluster is None else "--conduct-on-spark"
        command = [sys.executable, str(Path(__file__).absolute()), how, str(self.folder)]
        if self.cluster is not None:
            command = self.cluster.on_host(DRIVER, command)
        log = (self.folder.parent / f"{self.folder.name}-conductor-{len(self.conductors):03}.log").open("wb")
        self.conductors.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))

    @property
    def conductor(self) -> subprocess.Popen[bytes]:
        return self.conductors[-1]

    def _logs(self) -> list[Path]:
        return sorted(self.folder.parent.glob(f"{self.folder.name}-conductor-*.log"))

    @property
    def last(self) -> Commit | None:
        return self.checkpoint.last() if (self.folder / "run" / "commits").exists() else None

    # Faults.

    def kinds(self) -> dict[str, Callable[[], None]]:
        found = {
            "kill a worker": lambda: self._kill(self._some(self._workers())),
            "stop a worker": lambda: self._stop(self._some(self._workers()), 6.0),
            "kill a node": self._kill_node,
            "stop a node": self._stop_node,
            "kill the conductor": self._kill_conductor,
            "stop the conductor": self._stop_conductor,
            "two conductors": self.hire,
            "another plan": self._another_plan,
            "files cut short": self._cut_files,
        }
        if self._disk_is_own:
            found["full disk"] = self._fill_disk
        if self.cluster is None:
            found["cut links"] = lambda: self._signal(self._some(self._workers()), signal.SIGUSR1)
        else:
            found["kill an executor"] = lambda: self._kill(self._some(self._executors()))
            found["stop an executor"] = lambda: self._stop(self._some(self._executors()), 8.0)
            found["stop the Master"] = self._stop_master
            if self.cluster.network is not None:
                found["cut links"] = self._cut_link
        return found

    def fault(self) -> str:
        kinds = self.kinds()
        kind = self.dice.choice(sorted(kinds))
        self.faults[kind] += 1
        kinds[kind]()
        return kind

    def _workers(self) -> list[psutil.Process]:
        """Processes of bundles."""
        if self.cluster is None:
            with suppress(psutil.NoSuchProcess):
                return list(psutil.Process(self.conductor.pid).children())
            return []
        return [
            worker
            for executor in self._executors()
            for daemon in executor.children()
            if WORKER_DAEMON in _words(daemon)
            for worker in daemon.children()
        ]

    def _executors(self) -> list[psutil.Process]:
        daemons = [] if self.cluster is None else [node.worker for node in self.cluster.nodes]
        processes = [process for daemon in daemons if daemon is not None for process in tree(daemon)]
        return [process for process in processes if "--executor-id" in _words(process)]

    def _some(self, processes: list[psutil.Process]) -> list[psutil.Process]:
        return [self.dice.choice(processes)] if processes else []

    def _signal(self, processes: list[psutil.Process], number: int) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _kill(self, processes: list[psutil.Process]) -> None:
        self._signal(processes, signal.SIGKILL)

    def _stop(self, processes: list[psutil.Process], seconds: float) -> None:
        """For a while; then they go on as if nothing had happened."""
        self._signal(processes, signal.SIGSTOP)
        self._after(seconds * (0.5 + self.dice.random()), lambda: self._signal(processes, signal.SIGCONT))

    def _node(self) -> tuple[str, list[psutil.Process]]:
        if self.cluster is None:
            workers = self._workers()
            half = self.dice.sample(workers, len(workers) // 2) if workers else []
            return "some", half
        node = self.dice.choice(self.cluster.nodes)
        return node.name, [] if node.worker is None else tree(node.worker)

    def _kill_node(self) -> None:
        name, processes = self._node()
        if self.cluster is None:
            self._kill(processes)
            return
        folder = self.cluster.folder
        with suppress(PenstockError):  # it may be dead already
            kill_worker(name, folder)

        def back() -> None:
            with suppress(PenstockError):
                self.cluster = start_worker(name, folder)

        self._after(4.0 + 8.0 * self.dice.random(), back)

    def _stop_node(self) -> None:
        self._stop(self._node()[1], 12.0)

    def _stop_master(self) -> None:
        if self.cluster is not None and self.cluster.master is not None:
            self._stop(tree(self.cluster.master), 8.0)

    def _cut_link(self) -> None:
        network = self.cluster.network if self.cluster is not None else None
        if network is not None and self.cluster is not None:
            host = self.dice.choice([DRIVER, *(node.name for node in self.cluster.nodes)])
            network.cut(host)
            self._after(2.0 + 6.0 * self.dice.random(), lambda: network.restore(host))

    def _kill_conductor(self) -> None:
        _signal_group(self.conductor, signal.SIGKILL)
        self.hire()

    def _stop_conductor(self) -> None:
        """Until another has taken over; then it goes on, and must find out."""
        stopped = self.conductor
        with suppress(ProcessLookupError):
            os.kill(stopped.pid, signal.SIGSTOP)
        self.hire()

        def go_on() -> None:
            with suppress(ProcessLookupError):
                os.kill(stopped.pid, signal.SIGCONT)

        self._after(4.0, go_on)

    def _another_plan(self) -> None:
        plan = self.dice.choice(plan_names(self.folder))
        request = RunRequest(id=f"chaos{sum(self.faults.values())}", ask="resume", plan=plan)
        folder = self.folder / "run" / "requests"
        if folder.exists():
            (folder / f".{request.id}").write_text(request.model_dump_json(), encoding="utf-8")
            (folder / f".{request.id}").rename(folder / f"{request.id}.json")

    def _cut_files(self) -> None:
        """The lease, a request, and leftovers of a staging that was cut off."""
        for name, text in (("lease.json", '{"host"'), ("requests/cut.json", "{"), ("answers/cut.json", "")):
            with suppress(OSError):
                (self.folder / "run" / name).write_text(text, encoding="utf-8")
        staged = self.folder / "out" / "_staged"
        if staged.exists():
            (staged / "left-behind.parquet").write_bytes(b"PAR1")

    def _fill_disk(self) -> None:
        ballast = self.folder / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        self._after(1.0 + 2.0 * self.dice.random(), lambda: ballast.unlink(missing_ok=True))

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        self._later.append((Stopwatch(), seconds, work))

    # Recovering.

    def turn(self) -> None:
        pause(0.05)
        due = [entry for entry in self._later if entry[0].seconds() >= entry[1]]
        self._later = [entry for entry in self._later if entry not in due]
        for _, _, work in due:
            work()
        if self.conductor.poll() is not None:
            # it failed and said that the run can be resumed
            self.hire()

    def recover(self, kind: str) -> None:
        """Until two epochs are committed that were opened after the fault: by another conductor, where one was hired,
        which writes an epoch as it takes over."""
        watch, before = Stopwatch(), self.last
        number, epoch = (-1, 0) if before is None else (before.conductor, before.epoch)
        taken_over = "conductor" not in kind
        while True:
            last = self.last
            if last is not None and last.conductor > number:
                number, epoch, taken_over = last.conductor, last.epoch, True
            if taken_over and last is not None and last.epoch >= epoch + 2:
                break
            self.turn()
            if watch.seconds() > LONGEST_RECOVERY:
                said = [log.read_text("utf-8", "replace")[-2000:] for log in self._logs()[-2:]]
                raise SystemExit("\n".join([*said, f"did not recover from '{kind}': {dict(self.faults)}"]))
        self.recoveries.append((kind, watch.seconds()))
        print(f"{kind:20} {watch.seconds():6.1f} s", file=sys.stderr, flush=True)

    def finish(self) -> dict[str, Any]:
        while self._later:
            self.turn()
        for conductor in self.conductors[:-1]:
            _signal_group(conductor, signal.SIGKILL)
        self.recover("the end")
        self.recoveries.pop()
        self._ask_to_stop()
        watch = Stopwatch()
        while self.conductor.poll() is None and watch.seconds() < LONGEST_RECOVERY:
            pause(0.1)
        last = self.last
        offset = 0 if last is None else int(last.offsets["src"])
        ids = ds.dataset(self.folder / "out", format="parquet").to_table(["penstock_id"])["penstock_id"]
        # two ways lead to the sink: every tuple is there twice
        counts = np.bincount(ids.to_numpy(), minlength=offset)
        return {
            "lost": int(np.maximum(2 - counts[:offset], 0).sum()),
            "doubled": int(np.maximum(counts[:offset] - 2, 0).sum() + counts[offset:].sum()),
            "tuples": offset,
            "recoveries": self.recoveries,
            "load_average": os.getloadavg()[1],
        }

    def _ask_to_stop(self) -> None:
        request = RunRequest(id="chaosend", ask="stop")
        file = self.folder / "run" / "requests" / f"{request.id}.json"
        file.write_text(request.model_dump_json(), encoding="utf-8")

    def close(self) -> None:
        for conductor in self.conductors:
            _signal_group(conductor, signal.SIGKILL)
            conductor.wait()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """A conductor and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def _mounted(folder: Path) -> bool:
    """A small disk of its own, where it may be had: it can be filled."""
    if os.geteuid() != 0:
        return False
    size = ["-o", f"size={DISK_MB}m"]
    return subprocess.run(["mount", "-t", "tmpfs", *size, "tmpfs", str(folder)], check=False).returncode == 0  # noqa: S607 - wherever it is


def hurt(folder: Path, seconds: float, seed: int, most_faults: int, cluster: RunningCluster | None) -> dict[str, Any]:
    chaos = Chaos(folder, seed, cluster)
    watch = Stopwatch()
    try:
        chaos.recover("the start")
        chaos.recoveries.clear()
        while watch.seconds() < seconds and sum(chaos.faults.values()) < most_faults:
            calm, rest = Stopwatch(), 1.5 * chaos.dice.random()
            while calm.seconds() < rest:
                chaos.turn()
            chaos.recover(chaos.fault())
        return chaos.finish()
    finally:
        chaos.close()
        if chaos._disk_is_own:
            subprocess.run(["umount", "-l", str(folder)], check=False)  # noqa: S607 - wherever it is


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--faults", type=int, default=10**6, help="at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--together", type=Path, help="a file of runs; this one is added, and all are counted")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--namespaces", action="store_true")
    parser.add_argument("--conduct", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--conduct-on-spark", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.conduct is not None:
        conduct_locally(options.conduct)
        return
    if options.conduct_on_spark is not None:
        conduct_on_spark(options.conduct_on_spark)
        return
    with ExitStack() as opened:
        home = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-chaos-")))
        cluster, folder = None, home / "chaos"
        if options.spark:
            cluster = opened.enter_context(
                running_cluster(2, 2, folder=home / "cluster", memory_mb=768, namespaces=options.namespaces)
            )
            os.environ["PENSTOCK_STATE"] = str(cluster.folder)
            folder = home / "cluster" / "chaos"
        folder.mkdir()
        runs = [hurt(folder, 60 * options.minutes, options.seed, options.faults, cluster)]
    if options.together is not None:
        with options.together.open("a", encoding="utf-8") as file:
            file.write(json.dumps(runs[0]) + "\n")
        runs = [json.loads(line) for line in options.together.read_text(encoding="utf-8").splitlines()]
    found = figures_of(runs)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        print(f"{name:16} {value}")


if __name__ == "__main__":
    main()
