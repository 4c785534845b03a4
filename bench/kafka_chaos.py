"""A run from Kafka into Kafka on a cluster of two nodes, hurt again and again; what the topics hold is counted.

    ./run bench kafka_chaos [--engine fused|placed] [--connector own|spark] [--rounds N] [--away S]
                            [--faults worker,broker,...] [--json]

Numbered messages come in without a pause, and an operator that answers differently whenever it is asked passes them on.
In every round a Python worker, an executor and the driver are killed (-9), the broker is restarted, and the run gets
other slots; with `--faults grow` the topic gets another partition. A fault is over when everything sent before it, and
something sent after it, is in the topic.

    faults, by kind             how many there were
    recovery_s_p50, _max        seconds until a fault was over
    messages, lost, doubled     of all that was sent, by reading the topic from its beginning, only what is committed
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import PenstockError
from penstock.base.files import temporary_folder
from penstock.connectors.topic_address import parse_log
from penstock.spark.broker.broker import broker_down, broker_up
from penstock.spark.broker.jars import CONNECTOR, fetch
from penstock.spark.clusters.local.guard import guarded
from penstock.spark.clusters.local.lifecycle import running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.log_contract import TopicLog

MODULE = """
import random
import penstock

def mark(row):
    return {{"value": b"%d:%d" % (int(row["value"]), random.randrange(10**9))}}

pipeline = penstock.pipeline("marking")
kafka = {{"kafka.bootstrap.servers": "{servers}"}}
pipeline.source("in", format="kafka", options={{**kafka, "subscribe": "in", {connector}}})
pipeline.then("mark", logic=mark, schema="value binary"{model})
pipeline.sink("out", format="kafka", options={{**kafka, "topic": "out"}})
"""
FAULTS = ("worker", "executor", "driver", "broker", "plan")
MORE_FAULTS = ("grow",)
RATE = 200
SLOTS = (2, 3)
PATIENCE_SECONDS = 300.0
LOOK_SECONDS = 0.2
RUN_SECONDS = 86_400


class Feed:
    """Sends numbers, so many a second, until it is told to end. A broker that is away is waited for."""

    def __init__(self, log: TopicLog) -> None:
        self._producer = log.producer()
        self._log, self._over, self._anew = log, threading.Event(), threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if self._anew.is_set():
                self._anew.clear()
                self._producer.close()
                self._producer = self._log.producer()
            more = int(RATE * LOOK_SECONDS)
            self._producer.send("in", [str(number).encode() for number in range(self.sent, self.sent + more)])
            self.sent += more

    def begin_anew(self) -> None:
        """By another producer: one that knows a topic's partitions asks for them once in five minutes."""
        self._anew.set()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.close()


class Reader:
    """What is in the topic, read on from where it was."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._at: dict[int, int] = {}
        self.counts: Counter[int] = Counter()

    def look(self) -> None:
        for partition, span in self._log.spans("out").items():
            for batch in self._log.read("out", partition, self._at.get(partition, span.first), span.end):
                self.counts.update(int(value.partition(b":")[0]) for value in batch["value"].to_pylist())
            self._at[partition] = span.end

    def has(self, sent: int) -> bool:
        """Everything below, and something above."""
        self.look()
        below = sum(number < sent for number in self.counts)
        return below == sent and len(self.counts) > below


class Chaos:
    def __init__(self, folder: Path, engine: str, connector: str, away: float) -> None:
        self.folder, self.engine, self.away = folder, engine, away
        self.run_folder = folder / "run"
        self.broker = broker_up(folder / "state")
        self.log = parse_log(self.broker.address).open()
        self.log.create("in", 4)
        self.log.create("out", 2)
        asked = f'"connector": "{connector}"' if engine == "fused" else ""
        # a plan needs a model; that of `pi` makes it two slots
        model = "" if engine == "fused" else ', model="pi"'
        written = MODULE.format(servers=self.broker.servers, connector=asked, model=model)
        (folder / "marking_pipeline.py").write_text(written)
        os.environ.update(PENSTOCK_RUNS=str(folder / "runs"), PENSTOCK_STATE=str(folder / "state"))
        source = str(Path(penstock.__file__).parent.parent)
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(folder)])}
        self.jars = ",".join(map(str, fetch(CONNECTOR))) if connector == "spark" and engine == "fused" else ""
        self.feed, self.reader = Feed(self.log), Reader(self.log)
        self.dice = random.Random(5)  # noqa: S311 - dice
        self.recoveries: dict[str, list[float]] = {}
        self.slots = SLOTS[0]
        self.drivers = 0
        self.driver = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        if self.drivers:
            words = ["resume", str(self.run_folder)]
        elif self.engine == "fused":
            words = ["run", "marking_pipeline:pipeline", "--master", "cluster", "--slots", str(self.slots)]
            words += ["--conf", f"spark.jars={self.jars}"] if self.jars else []
        else:
            plan = self.folder / "plan.json"
            where = ["--cluster", "live", "-o", str(plan)]
            self._penstock("plan", "marking_pipeline:pipeline", "--rate", str(RATE), *where)
            words = ["run", str(plan), "--placed"]
        words += [] if self.drivers else ["--folder", str(self.run_folder)]
        # a placed run that is not told how long ends by itself
        words += [] if self.engine == "fused" else ["--seconds", str(RUN_SECONDS)]
        self.drivers += 1
        with (self.folder / f"driver-{self.drivers}.log").open("wb") as output:
            line = [sys.executable, "-P", "-m", "penstock", *words]
            return subprocess.Popen(line, env=self.environment, stdout=output, stderr=output)

    def _penstock(self, *words: str) -> None:
        line = [sys.executable, "-P", "-m", "penstock", *words]
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"penstock {words[0]}: {done.stderr}")

    # Faults.

    def kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "worker": lambda: self._kill_some("worker_daemon", idle=True),
            "executor": lambda: self._kill_some("CoarseGrainedExecutorBackend", idle=False),
            "driver": self._kill_driver,
            "broker": self._restart_broker,
            "plan": self._other_slots,
            "grow": self._grow,
        }

    def _kill_some(self, words: str, *, idle: bool) -> None:
        """A process that a Worker of the cluster started; `idle`: without children."""
        there = [
            process
            for process in psutil.process_iter(["cmdline", "cwd"])
            if words in " ".join(process.info["cmdline"] or ())
            and str(process.info["cwd"]).startswith(str(self.folder))
            and not (idle and process.children())
        ]
        if not there:
            sys.exit(f"no process with '{words}' to kill; see {self.folder}")
        self.dice.choice(there).kill()

    def _kill_driver(self) -> None:
        self.driver.kill()
        self.driver.wait()
        self.driver = self._start()

    def _restart_broker(self) -> None:
        broker_down(self.folder / "state", keep=True)
        pause(self.away)
        broker_up(self.folder / "state")

    def _other_slots(self) -> None:
        self.slots = SLOTS[self.slots == SLOTS[0]]
        penstock.rescale(self.run_folder, self.slots)

    def _grow(self) -> None:
        self.log.create("in", len(self.log.spans("in")) + 1)
        self.feed.begin_anew()

    # Rounds.

    def recover(self, kind: str) -> None:
        watch, sent = Stopwatch(), self.feed.sent
        while not self.reader.has(sent):
            pause(LOOK_SECONDS)
            if self.driver.poll() is not None:
                sys.exit(f"the run ended after '{kind}': {self._last_words()}")
            if watch.seconds() > PATIENCE_SECONDS:
                missing = sum(not self.reader.counts[number] for number in range(sent))
                sys.exit(f"{missing:,} of {sent:,} messages not there {PATIENCE_SECONDS:g} s after '{kind}'")
        self.recoveries.setdefault(kind, []).append(watch.seconds())
        print(f"{kind}: {watch.seconds():.1f} s", file=sys.stderr, flush=True)

    def _last_words(self) -> str:
        return (self.folder / f"driver-{self.drivers}.log").read_text(errors="replace")[-2000:]

    def rounds(self, count: int, wanted: Sequence[str]) -> dict[str, Any]:
        self.recover("start")
        kinds = self.kinds()
        for _ in range(count):
            for kind in wanted:
                pause(self.dice.random())
                try:
                    kinds[kind]()
                except PenstockError as error:
                    sys.exit(f"'{kind}': {error}; the driver's last words: {self._last_words()}")
                self.recover(kind)
        self.feed.end()
        while len(self.reader.counts) < self.feed.sent:
            self.recover_rest()
        self.driver.send_signal(signal.SIGTERM)
        self.driver.wait(PATIENCE_SECONDS)
        del self.recoveries["start"]
        seconds = [value for values in self.recoveries.values() for value in values]
        whole = Reader(self.log)
        whole.look()
        print({number: span.messages for number, span in self.log.spans("in").items()}, "in", file=sys.stderr)
        return {
            "faults": len(seconds),
            **{kind: len(values) for kind, values in self.recoveries.items()},
            **{f"{kind}_s_p50": float(np.median(values)) for kind, values in self.recoveries.items()},
            "recovery_s_p50": float(np.median(seconds)),
            "recovery_s_max": max(seconds),
            "messages": self.feed.sent,
            "lost": self.feed.sent - len(whole.counts),
            "doubled": whole.counts.total() - len(whole.counts),
        }

    def recover_rest(self) -> None:
        watch = Stopwatch()
        while len(self.reader.counts) < self.feed.sent and watch.seconds() < PATIENCE_SECONDS:
            pause(LOOK_SECONDS)
            self.reader.look()
        if len(self.reader.counts) < self.feed.sent:
            sys.exit(f"{self.feed.sent - len(self.reader.counts):,} messages did not come to the end")

    def close(self) -> None:
        if self.driver.poll() is None:
            self.driver.kill()
        self.log.close()
        broker_down(self.folder / "state")


BROKER_DOWN = (sys.executable, "-P", "-m", "penstock", "broker", "down", "--folder")
"""For when this process is killed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("fused", "placed"), default="fused")
    parser.add_argument("--connector", choices=("own", "spark"), default="own", help="fused: who reads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--away", type=float, default=2.0, help="seconds the broker is away, at least")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which, with commas between them")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if unknown := set(given.faults.split(",")) - {*FAULTS, *MORE_FAULTS}:
        parser.error(f"unknown faults {', '.join(sorted(unknown))}; known: {', '.join((*FAULTS, *MORE_FAULTS))}")
    with temporary_folder("kafka-chaos") as folder, guarded([*BROKER_DOWN, str(folder / "state")]):
        os.environ["PENSTOCK_STATE"] = str(folder / "state")
        with running_cluster(2, 2, folder=folder / "state"):
            chaos = Chaos(folder, given.engine, given.connector, given.away)
            try:
                figures = chaos.rounds(given.rounds, given.faults.split(","))
            finally:
                chaos.close()
    print(json.dumps(figures) if given.json else "\n".join(f"{name:16} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
