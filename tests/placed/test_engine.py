"""The placed engine with plain processes instead of Spark's: links, epochs, deaths, another plan, exactly once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from local_processes import code_of, conductor, laid_out, line

from penstock.base.clock import Stopwatch, now
from penstock.cluster.topology import Slot
from penstock.dataflow.logic import Logic
from penstock.engines.placed.conductor import Conductor
from penstock.engines.placed.flow.audit import audit, ways_of
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.launchers import LocalLauncher

A, B, C = Slot("n1", 0), Slot("n1", 1), Slot("n2", 0)


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    made = LocalLauncher()
    yield made
    made.close()


def turn_until(run: Conductor, what: Callable[[], bool], seconds: float = 20.0) -> None:
    watch = Stopwatch()
    while not what():
        run.turn()
        assert run.stopped is None or what(), run.stopped
        assert watch.seconds() < seconds, f"still {run.run.state} after {seconds} s"


def wait(run: Conductor, answer: Future[None]) -> None:
    turn_until(run, answer.done)
    answer.result()


def turn_for(run: Conductor, seconds: float) -> None:
    watch = Stopwatch()
    while watch.seconds() < seconds:
        run.turn()


def written(folder: Path, sink: str = "out") -> list[int]:
    found = ds.dataset(folder / sink, format="parquet").to_table() if (folder / sink).exists() else None
    return [] if found is None else found["penstock_id"].to_pylist()


def check(run: Conductor, folder: Path, sink: str = "out") -> int:
    """Everything up to the committed offset is in the sink's files once."""
    offset = int(run.run.commit.offsets["src"])
    counts = Counter(written(folder, sink))
    assert max(counts.values(), default=1) == 1
    assert set(counts) == set(range(offset))
    return offset


def test_tuples_flow_and_every_one_is_written_once(tmp_path: Path, launcher: LocalLauncher) -> None:
    pipeline = line(Logic(same), Logic(same))
    code = code_of(pipeline, tmp_path)
    plan = laid_out(code, {"src": {A: 1}, "op0": {A: 1, C: 1}, "op1": {B: 2}, "out": {B: 1}})
    run = conductor(tmp_path, plan, 1000.0, launcher)
    try:
        turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        turn_for(run, 1.5)
        wait(run, run.drain(end=True))
        assert run.run.state is FlowState.ENDED
    finally:
        run.close()
    offset = check(run, tmp_path)
    assert offset > 1000
    seen = audit(run.ids, {"src": offset}, ways_of(pipeline, lambda _: 0), made_several=False)
    assert (seen.emitted, seen.lost, seen.duplicated) == (offset, 0, 0)


def test_a_process_that_is_killed_costs_a_second_and_no_tuple(tmp_path: Path, launcher: LocalLauncher) -> None:
    def answer_differently(row: dict[str, Any]) -> dict[str, Any]:
        return {"value": random.randrange(10**9)}  # noqa: S311 - any other answer will do

    code = code_of(line(Logic(answer_differently)), tmp_path)
    plan = laid_out(code, {"src": {A: 1}, "op0": {A: 1, B: 1}, "out": {C: 1}})
    run = conductor(tmp_path, plan, 500.0, launcher)
    try:
        turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        for victim in ("op0@n1/1", "src@n1/0", "out@n2/0"):
            turn_for(run, 0.5)
            generation = run.run.generation
            os.kill(launcher.processes[victim].pid, signal.SIGKILL)
            turn_until(run, lambda: run.run.generation > generation and run.run.state is FlowState.FLOWING)  # noqa: B023
        turn_for(run, 0.5)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    assert check(run, tmp_path) > 500


def test_another_plan_takes_over_and_keeps_what_stays(tmp_path: Path, launcher: LocalLauncher) -> None:
    code = code_of(line(Logic(same)), tmp_path)
    small = laid_out(code, {"src": {A: 1}, "op0": {A: 1}, "out": {B: 1}}, "small")
    large = laid_out(code, {"src": {A: 1}, "op0": {A: 2, C: 2}, "out": {B: 1}}, "large")
    run = conductor(tmp_path, small, 500.0, launcher)
    try:
        turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        before = {name: one.pid for name, one in launcher.processes.items()}
        for plan in (large, small, large):
            turn_for(run, 0.3)
            wait(run, run.change(plan))
            assert run.run.layout is plan.layout
            assert {name: launcher.processes[name].pid for name in before} == before
        turn_for(run, 0.5)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    check(run, tmp_path)
    assert run.run.commit.plan == "large"


def test_a_conductor_that_dies_is_followed_by_another(tmp_path: Path, launcher: LocalLauncher) -> None:
    code = code_of(line(Logic(same)), tmp_path)
    plan = laid_out(code, {"src": {A: 1}, "op0": {B: 1}, "out": {B: 1}})
    began = now()
    first = conductor(tmp_path, plan, 500.0, launcher, began)
    turn_until(first, lambda: first.run.commit.epoch >= 3)
    other = LocalLauncher()
    second = conductor(tmp_path, plan, 500.0, other, began)
    try:
        # the first goes on as if nothing had happened, until it tries to commit
        while not first.is_over:
            first.turn()
            second.turn(0.0)
        assert first.run.state is FlowState.FENCED
        turn_until(second, lambda: second.run.commit.epoch >= 8)
        wait(second, second.drain(end=True))
    finally:
        first.close()
        second.close()
    check(second, tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("nobody may mount a small disk here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_while_the_disk_is_full_the_run_waits(tmp_path: Path, small_disk: Path, launcher: LocalLauncher) -> None:
    code = code_of(line(Logic(same)), tmp_path)
    plan = laid_out(code, {"src": {A: 1}, "op0": {B: 1}, "out": {C: 1}})
    run = conductor(tmp_path, plan, 300.0, launcher, place=str(small_disk), retry=0.2)
    try:
        turn_until(run, lambda: run.run.commit.epoch >= 3)
        ballast = small_disk / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        turn_for(run, 0.5)  # what was open when it filled up may still be written
        epoch = run.run.commit.epoch
        turn_for(run, 1.0)
        assert run.run.commit.epoch == epoch
        ballast.unlink()
        turn_until(run, lambda: run.run.commit.epoch > epoch + 2)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    assert check(run, tmp_path) > 300


def test_a_row_that_kills_its_process_is_put_aside(tmp_path: Path, launcher: LocalLauncher) -> None:
    def die_of_77(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == 77:
            os._exit(3)
        return row

    code = code_of(line(Logic(die_of_77)), tmp_path)
    plan = laid_out(code, {"src": {A: 1}, "op0": {B: 1}, "out": {C: 1}})
    run = conductor(tmp_path, plan, 200.0, launcher, retry=0.1)
    try:
        turn_until(run, lambda: int(run.run.commit.offsets.get("src", 0)) > 100, 30.0)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    offset = int(run.run.commit.offsets["src"])
    assert sorted(written(tmp_path)) == [number for number in range(offset) if number != 77]
    assert set(run.ids.dead) == {77}
