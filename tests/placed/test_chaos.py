"""A short day of everything that can go wrong, at random moments; what the sinks' own files hold decides."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from local_processes import code_of, conductor, laid_out
from test_engine import A, B, C, turn_for, turn_until, wait, written

from penstock.base.clock import Stopwatch, now
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed.conductor import Conductor
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.launchers import LocalLauncher

FAULTS = 6


def answer_differently(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": random.randrange(10**9)}  # noqa: S311 - any other answer will do


def diamond() -> Pipeline:
    operators = [
        Operator(name="src", kind=Kind.SOURCE),
        Operator(name="left", logic=Logic(answer_differently)),
        Operator(name="right", logic=Logic(answer_differently)),
        Operator(name="join", logic=Logic(answer_differently)),
        Operator(name="out", kind=Kind.SINK),
    ]
    ways = (("src", "left"), ("src", "right"), ("left", "join"), ("right", "join"), ("join", "out"))
    return Pipeline.of("diamond", operators, [Stream(sender=a, receiver=b) for a, b in ways])


class Chaos:
    """Two plans, one conductor at a time that matters, and a seeded generator that hurts them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.dice, self.began = folder, random.Random(seed), now()  # noqa: S311 - dice
        code = code_of(diamond(), folder)
        self.plans = [
            laid_out(
                code, {"src": {A: 1}, "left": {A: 1}, "right": {B: 1}, "join": {B: 1, C: 1}, "out": {C: 1}}, "one"
            ),
            laid_out(code, {"src": {A: 1}, "left": {B: 2}, "right": {B: 1}, "join": {C: 1}, "out": {C: 1}}, "two"),
        ]
        self.launchers: list[LocalLauncher] = []
        self.conductors: list[Conductor] = []
        self.recovered: list[float] = []
        self.hire()

    def hire(self) -> None:
        self.launchers.append(LocalLauncher())
        self.conductors.append(
            conductor(self.folder, self.plans[0], 400.0, self.launchers[-1], self.began, silence=1.5)
        )

    @property
    def run(self) -> Conductor:
        return self.conductors[-1]

    def fault(self) -> None:
        """One of: kill, stop (a process that does not answer), another plan, another conductor beside the first."""
        victim = self.dice.choice(sorted(self.launchers[-1].processes))
        process = self.launchers[-1].processes[victim]
        kind = self.dice.choice(["kill", "kill", "stop", "plan", "conductor"])
        if kind == "kill":
            os.kill(process.pid, signal.SIGKILL)
        elif kind == "stop":
            os.kill(process.pid, signal.SIGSTOP)
        elif kind == "plan":
            self.run.change(self.dice.choice(self.plans))
        else:
            self.hire()

    def recover(self) -> None:
        """Until an epoch was opened and committed after the fault; conductors that were replaced go on meanwhile."""
        watch, epoch = Stopwatch(), self.run.run.commit.epoch
        while self.run.run.commit.epoch < epoch + 3 or self.run.run.state is not FlowState.FLOWING:
            self.run.turn()
            for other in self.conductors[:-1]:
                if not other.is_over:
                    other.turn(0.0)
            assert self.run.stopped is None, self.run.stopped
            assert watch.seconds() < 40, f"did not recover: {self.run.run.state}"
        self.recovered.append(watch.seconds())

    def close(self) -> None:
        for run in self.conductors:
            run.close()
        for launcher in self.launchers:
            launcher.close()


def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seed=7)
    try:
        turn_until(chaos.run, lambda: chaos.run.run.state is FlowState.FLOWING)
        for _ in range(FAULTS):
            turn_for(chaos.run, chaos.dice.random() * 0.5)
            chaos.fault()
            chaos.recover()
        run = chaos.run
        wait(run, run.drain(end=True))
    finally:
        chaos.close()
    offset = int(run.run.commit.offsets["src"])
    counts = Counter(written(tmp_path))
    # two ways from the source to the sink: every tuple twice, neither more nor less
    assert counts == Counter(dict.fromkeys(range(offset), 2))
    assert offset > 500
    assert run.ids.duplicated == 0
