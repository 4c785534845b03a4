"""A placed pipeline from a topic into a topic, hurt at random moments; what the topics hold decides."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from local_processes import conductor, laid_out
from test_engine import A, B, C, turn_until, wait

from penstock.base.clock import Stopwatch
from penstock.connectors.log_contract import TopicLog
from penstock.connectors.topic_address import LogAddress
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed.bundle_plan import Code, LaidOut
from penstock.engines.placed.conductor import Conductor
from penstock.engines.placed.endpoints import named_sinks, sinks_of, topic_shares
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.launchers import LocalLauncher
from penstock.runtime.dead_letters import DEAD_LETTERS


def mark(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": f"{int(row['value'])}:{random.randrange(10**9)}".encode()}  # noqa: S311 - any other answer will do


def topic_pipeline(address: LogAddress, into: LogAddress, **source_options: str) -> Pipeline:
    """in -> op -> out; what is no number is a dead letter, and code answers differently whenever it is asked."""
    options = {**address.options, "subscribe": "in", **source_options}
    operators = [
        Operator(name="src", kind=Kind.SOURCE, format=address.format, options=options),
        Operator(name="op", logic=Logic(mark)),
        Operator(name="out", kind=Kind.SINK, format=into.format, options={**into.options, "topic": "out"}),
    ]
    ways = (("src", "op"), ("op", "out"))
    return Pipeline.of("topics", operators, [Stream(sender=a, receiver=b) for a, b in ways])


def values(log: TopicLog, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            found += batch["value"].to_pylist()
    return found


class TopicChaos:
    def __init__(
        self, folder: Path, address: LogAddress, seed: int, source_options: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self.dice = folder, random.Random(seed)  # noqa: S311 - dice
        self.log = address.open()
        for topic, partitions in (("in", 3), ("out", 2), ("letters", 1)):
            self.log.create(topic, partitions)
        pipeline = topic_pipeline(address, address, **(source_options or {}))
        sinks, _ = sinks_of(pipeline, None)
        letters, _ = sinks_of(pipeline, Path(f"{address}/letters"))
        sinks[DEAD_LETTERS] = letters[DEAD_LETTERS]
        code = Code(
            pipeline,
            {"op": Logic(mark)},
            {"op": pa.schema([("value", pa.binary())])},
            named_sinks(sinks, f"r-{folder.name}", str(folder)),
            audit=False,
            topics=topic_shares(pipeline),
        )
        self.plans: list[LaidOut] = [
            laid_out(code, {"src": {A: 1, B: 1}, "op": {B: 1, C: 1}, "out": {C: 1}}, "one"),
            laid_out(code, {"src": {A: 1}, "op": {B: 2}, "out": {A: 1, C: 1}}, "two"),
        ]
        self.launchers: list[LocalLauncher] = []
        self.conductors: list[Conductor] = []
        self.sent = 0
        self.others: dict[str, Callable[[], None]] = {}
        """Faults that only whoever keeps the log knows."""
        self.hire()

    def hire(self) -> None:
        self.launchers.append(LocalLauncher())
        self.conductors.append(conductor(self.folder, self.plans[0], 1.0, self.launchers[-1], silence=1.5))

    @property
    def run(self) -> Conductor:
        return self.conductors[-1]

    def send(self, count: int) -> None:
        producer = self.log.producer()
        producer.send("in", [str(number).encode() for number in range(self.sent, self.sent + count)])
        producer.close()
        self.sent += count

    def hurt(self, kind: str) -> None:
        """kill: kill -9 of a bundle; plan: another one, with other bundles; conductor: kill -9 of the driver, as far as
        the run can see: another takes over while the first one still lives."""
        if kind == "kill":
            victim = self.dice.choice(sorted(self.launchers[-1].processes))
            os.kill(self.launchers[-1].processes[victim].pid, signal.SIGKILL)
        elif kind in self.others:
            self.others[kind]()
        elif kind == "plan":
            self.run.change(self.plans[self.run.run.layout.plan == "one"])
        else:
            self.hire()

    def recover(self) -> None:
        watch, epoch = Stopwatch(), self.run.run.commit.epoch
        while self.run.run.commit.epoch < epoch + 2 or self.run.run.state is not FlowState.FLOWING:
            self.turn()
            assert watch.seconds() < 60, f"did not recover: {self.run.run.state}"

    def turn(self) -> None:
        self.run.turn()
        for other in self.conductors[:-1]:
            if not other.is_over:
                other.turn(0.0)
        assert self.run.stopped is None, self.run.stopped

    def finish(self) -> tuple[int, int]:
        """Everything through; then messages lost and doubled, counted in the topic."""
        watch = Stopwatch()
        turn_until(self.run, lambda: self.run.run.state is FlowState.FLOWING)
        while True:
            self.turn()
            counts = Counter(int(value.partition(b":")[0]) for value in values(self.log, "out"))
            if len(counts) >= self.sent or watch.seconds() > 60:
                break
        wait(self.run, self.run.drain(end=True))
        counts = Counter(int(value.partition(b":")[0]) for value in values(self.log, "out"))
        return self.sent - len(counts), sum(count - 1 for count in counts.values())

    def close(self) -> None:
        for run in self.conductors:
            run.close()
        for launcher in self.launchers:
            launcher.close()
        self.log.close()


def rounds(
    folder: Path,
    address: LogAddress,
    faults: list[str],
    messages: int = 3_000,
    others: dict[str, Callable[[], None]] | None = None,
) -> tuple[TopicChaos, int, int]:
    """As many rounds as faults: messages come in while something is hurt."""
    chaos = TopicChaos(folder, address, seed=5)
    chaos.others = others or {}
    try:
        turn_until(chaos.run, lambda: chaos.run.run.state is FlowState.FLOWING)
        for fault in faults:
            chaos.send(messages)
            for _ in range(chaos.dice.randrange(1, 12)):
                chaos.turn()
            chaos.hurt(fault)
            chaos.recover()
        lost, doubled = chaos.finish()
        return chaos, lost, doubled
    finally:
        chaos.close()
