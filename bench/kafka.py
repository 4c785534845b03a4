"""From Kafka into Kafka: how fast beside a query written by hand, and whether everything is there once.

    python bench/kafka.py [--messages N] [--rounds R] [--json]

A broker of its own, N messages of 100 bytes in two partitions, Spark on this machine. Every round reads all of them:

  by hand      readStream and writeStream with Spark's connector, at least once
  connector    a fused run with Spark's connector, at least once: `connector_ratio` of the rate by hand
  own          a fused run with our own source and sink, exactly once: `own_ratio`
  placed       a placed run, exactly once, its bundles plain processes of this machine: `placed_ratio`
  paced        a fused run with our own source while 1,000 messages/s come: `arrival_off` is by how much the rate it
               reports as coming in is off, `lag_off_batches` by how much the backlog it reports with a batch differs
               from what the broker says of the run's consumer group then, in largest batches

Rates are those of whole runs, less what the same run takes for no messages, either time the shortest of the rounds; one
round before them does not count. `lost` and `doubled` are counted by reading what our own sinks wrote, only what is
committed. `noise` is the spread of the time by hand over the rounds. Without Spark's connector there is nothing to
compare with: the first two are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import penstock
from penstock.base.clock import Stopwatch
from penstock.base.errors import ClusterError
from penstock.base.files import temporary_folder
from penstock.cluster.topology import Slot
from penstock.connectors.checkpoint import FolderCheckpoint
from penstock.connectors.commit import Commit
from penstock.connectors.topic_address import LogAddress, parse_log
from penstock.dataflow.load import Load
from penstock.engines.placed.bundle_plan import Code, LaidOut, lay_out
from penstock.engines.placed.conductor import Conductor, ConductorSetting
from penstock.engines.placed.endpoints import named_sinks, sinks_of, topic_shares
from penstock.engines.placed.launchers import LocalLauncher
from penstock.spark.broker.broker import broker_down, broker_up
from penstock.spark.broker.jars import CONNECTOR, fetch
from penstock.spark.clusters.local.guard import guarded
from penstock.spark.session.embedded import end_session, start_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.connectors.log_contract import TopicLog

PARTITIONS = 2
BYTES = 100
PLACED_SECONDS = 120.0
PACED_RATE = 1_000
PACED_WARM_UP, PACED_LOOKS = 15.0, 10


def copying(
    address: LogAddress, source: str, into: str, connector: str, delivery: str, **more: str
) -> penstock.Pipeline:
    """Messages as they are, from one topic into another."""
    built = penstock.pipeline("copying")
    asked = {"subscribe": source, "connector": connector, **more}
    built.source("in", format="kafka", options={**address.options, **asked})
    built.sink("out", format="kafka", options={**address.options, "topic": into, "delivery": delivery})
    return built.build()


def by_hand(session: Any, servers: str, source: str, into: str, folder: Path) -> None:
    read = session.readStream.format("kafka").options(subscribe=source, startingOffsets="earliest")
    frame = read.option("kafka.bootstrap.servers", servers).load().select("key", "value")
    write = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", into)
    query = write.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))


def fused(session: Any, pipeline: penstock.Pipeline, folder: Path) -> None:
    penstock.run(pipeline, session=session, until_end=True, folder=folder)


def placed(address: LogAddress, source: str, into: str, folder: Path, log: TopicLog, messages: int) -> None:
    """Until the topic has everything."""
    pipeline = copying(address, source, into, "own", "exactly-once")
    sinks, _ = sinks_of(pipeline, None)
    code = Code(
        pipeline, {}, {}, named_sinks(sinks, folder.name, str(folder)), audit=False, topics=topic_shares(pipeline)
    )
    first, second = Slot("a", 0), Slot("b", 0)
    laid_out = lay_out(code, [("in",), ("out",)], {first: {"in": 1}, second: {"out": 1}}, lambda _, n: float(n), "plan")
    checkpoint = FolderCheckpoint(folder / "checkpoint")
    checkpoint.create()
    taken = checkpoint.take_over(Commit(run=folder.name, conductor=0, generation=0, epoch=0, plan="plan"), "plan")

    def nowhere(_unusable: object) -> LaidOut:
        raise penstock.RunError("nowhere to go")

    launcher = LocalLauncher()
    run = Conductor(
        ConductorSetting(folder.name, checkpoint, "127.0.0.1", Load.constant(1.0), 0.0, nowhere),
        launcher,
        laid_out,
        taken,
    )
    watch = Stopwatch()
    try:
        while watch.seconds() < PLACED_SECONDS:
            run.turn()
            if run.stopped is not None:
                raise RuntimeError(run.stopped)
            if sum(span.messages for span in log.spans(into).values()) >= messages:
                return
        raise RuntimeError(f"not everything was there after {PLACED_SECONDS:g} s")
    finally:
        run.close()
        launcher.close()


def counted(log: TopicLog, topic: str, messages: int) -> tuple[int, int]:
    """Lost and doubled."""
    counts: Counter[int] = Counter()
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            counts.update(int(value) for value in batch["value"].to_pylist())
    return messages - len(counts), counts.total() - len(counts)


@dataclass(frozen=True)
class Times:
    """Seconds of every round, over no messages and over all."""

    empty: list[float]
    full: list[float]

    def rate(self, messages: int) -> float:
        return messages / max(0.001, min(self.full) - min(self.empty))

    def __str__(self) -> str:
        return "; ".join(
            f"{name} {', '.join(f'{value:.2f}' for value in values)} s"
            for name, values in (("none", self.empty), ("all", self.full))
        )


def paced(session: Any, address: LogAddress, log: TopicLog, folder: Path) -> dict[str, float]:
    """What a run says of arrivals and of what waits, beside what was sent and what the broker says."""
    over = threading.Event()

    def feed() -> None:
        producer, watch, sent = log.producer(), Stopwatch(), 0
        while not over.wait(0.05):
            due = int(PACED_RATE * watch.seconds())
            producer.send("paced", [b"x"] * (due - sent))
            sent = due
        producer.close()

    log.create("paced", PARTITIONS)
    log.create("paced-out", PARTITIONS)
    pipeline = copying(address, "paced", "paced-out", "own", "exactly-once", groupId="paced-readers")
    run = penstock.start(pipeline, session=session, folder=folder, warm_up=0)
    feeder = threading.Thread(target=feed)
    feeder.start()
    arrivals, differences = [], []
    try:
        run.await_end(PACED_WARM_UP)
        for _ in range(PACED_LOOKS):
            run.await_end(1.0)
            figures = _next_batch(run)
            read = log.group_offsets("paced-readers", "paced")
            waiting = sum(span.end - read.get(number, 0) for number, span in log.spans("paced").items())
            arrivals.append(figures.offered)
            differences.append(abs(figures.backlog - waiting))
    finally:
        over.set()
        feeder.join()
        history = run.drain().report.history
    largest = max(after.rate * (after.seconds - before.seconds) for before, after in pairwise(history))
    return {
        "arrival_off": abs(median(arrivals) - PACED_RATE) / PACED_RATE,
        "lag_off_batches": median(differences) / largest,
    }


def _next_batch(run: penstock.types.RunHandle) -> penstock.types.Figures:
    """What the run says as soon as it says something new: what it and the broker say is then of the same batch."""
    before = run.progress
    while (figures := run.progress) is None or (before is not None and figures.seconds == before.seconds):
        if run.await_end(0.01) is not None:
            raise RuntimeError("the run ended by itself")
    return figures


BROKER_DOWN = (sys.executable, "-P", "-m", "penstock", "broker", "down", "--folder")
"""For when this process is killed."""


class Bench:
    def __init__(self, folder: Path, messages: int, rounds: int) -> None:
        self.folder, self.messages, self.rounds = folder, messages, rounds
        self.broker = broker_up(folder / "state")
        self.address = parse_log(self.broker.address)
        self.log = self.address.open()
        self.lost = self.doubled = 0
        for topic, count in (("full", messages), ("empty", 0)):
            self.log.create(topic, PARTITIONS)
            producer = self.log.producer()
            producer.send(topic, [f"{number:0{BYTES}d}".encode() for number in range(count)])
            producer.close()

    def times(self, name: str, work: Callable[[str, str, Path], None], *, count: bool) -> Times:
        times = Times([], [])
        for number in range(self.rounds + 1):
            for source, seconds in (("empty", times.empty), ("full", times.full)):
                into = f"{name}-{source}-{number}"
                self.log.create(into, PARTITIONS)
                watch = Stopwatch()
                work(source, into, self.folder / f"{name}-{source}-{number}")
                if number:
                    seconds.append(watch.seconds())
            if count:
                lost, doubled = counted(self.log, f"{name}-full-{number}", self.messages)
                self.lost, self.doubled = self.lost + lost, self.doubled + doubled
        print(f"{name}: {times.rate(self.messages):,.0f} messages/s; {times}", file=sys.stderr)
        return times

    def run(self) -> dict[str, float]:
        figures: dict[str, float] = {"messages": self.messages}
        try:
            jars = ",".join(map(str, fetch(CONNECTOR)))
        except ClusterError as error:
            jars = ""
            print(f"no connector of Spark's: {error}", file=sys.stderr)
        session = start_session(2, self.folder / "java.log", settings={"spark.jars": jars} if jars else {})
        try:
            hand: Times | None = None
            if jars:
                hand = self.times("hand", lambda s, i, f: by_hand(session, self.broker.servers, s, i, f), count=False)
                theirs = self.times(
                    "connector",
                    lambda s, i, f: fused(session, copying(self.address, s, i, "spark", "at-least-once"), f),
                    count=False,
                )
                figures["by_hand_rate"] = hand.rate(self.messages)
                figures["connector_ratio"] = theirs.rate(self.messages) / hand.rate(self.messages)
                figures["noise"] = max(hand.full) / min(hand.full) - 1
            own = self.times(
                "own", lambda s, i, f: fused(session, copying(self.address, s, i, "own", "exactly-once"), f), count=True
            )
            figures |= paced(session, self.address, self.log, self.folder / "paced")
        finally:
            end_session(session)
        apart = self.times(
            "placed",
            lambda s, i, f: placed(self.address, s, i, f, self.log, self.messages if s == "full" else 0),
            count=True,
        )
        figures["own_rate"], figures["placed_rate"] = own.rate(self.messages), apart.rate(self.messages)
        if hand is not None:
            figures["own_ratio"] = figures["own_rate"] / figures["by_hand_rate"]
            figures["placed_ratio"] = figures["placed_rate"] / figures["by_hand_rate"]
        return {**figures, "lost": self.lost, "doubled": self.doubled}

    def close(self) -> None:
        self.log.close()
        broker_down(self.folder / "state")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--messages", type=int, default=400_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", action="store_true", help="figures only")
    given = arguments.parse_args()
    with temporary_folder("bench-kafka") as folder, guarded([*BROKER_DOWN, str(folder / "state")]):
        bench = Bench(folder, given.messages, given.rounds)
        try:
            figures = bench.run()
        finally:
            bench.close()
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
