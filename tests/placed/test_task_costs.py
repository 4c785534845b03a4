"""What rows cost the processes of a placed run: sampled calls, rows that cross, CPU, memory, and task profiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_processes import code_of, conductor, laid_out, line
from test_engine import turn_for, turn_until, wait

from penstock.base.clock import pause
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.launchers import LocalLauncher
from penstock.engines.placed.monitoring import EpochObserver
from penstock.report.epochs import IDLE_CORES, ProcessAccount, summarise_epochs, tasks_of
from penstock.report.report import Audit, OperatorObservation, Report, TaskObservation
from penstock.report.task_profiles import task_profiles
from penstock.runtime.account import Account
from penstock.runtime.call_sampler import CallSampler, sampling_cost

A, B = Slot("n1", 0), Slot("n2", 0)


class TestSampler:
    def test_one_call_in_so_many_is_measured(self) -> None:
        calls: list[int] = []
        sampler = CallSampler(calls.append, 20)
        for number in range(41):
            sampler.call(number)
        assert len(calls) == 41
        # the first, the 21st and the 41st
        assert sampler.take().rows == 3
        assert sampler.take() == (0, 0.0, 0.0)

    def test_the_work_of_a_generator_is_in_it(self) -> None:
        def several(row: int) -> Iterator[int]:
            pause(0.02)
            yield row

        sampler = CallSampler(several, 1)
        assert sampler.call(7) == [7]
        samples = sampler.take()
        assert samples.seconds >= 0.02
        assert samples.cpu_seconds < 0.02

    def test_a_call_that_raises_is_not_counted(self) -> None:
        sampler = CallSampler(lambda row: 1 // row, 1)
        with pytest.raises(ZeroDivisionError):
            sampler.call(0)
        assert sampler.take().rows == 0

    def test_its_cost_is_measured(self) -> None:
        # some tenths of a microsecond; below ten on any machine
        assert 0 <= sampling_cost(20) < 1e-5


def test_accounts_of_earlier_versions_are_read() -> None:
    account = Account(cpu_seconds=1.5, held_bytes=2048, sampling_seconds=0.25)
    account.sampled("a", 3, 0.5, 0.125)
    account.count("a").crossed = 7
    read = Account.from_bytes(account.to_bytes())
    assert read == account
    earlier = account.to_bytes()
    # ten counts of an operator, and no figures of the process
    text = earlier[9:].replace(b'"cpu_seconds":1.5,"held_bytes":2048,"sampling_seconds":0.25,', b"")
    text = text.replace(b",3,0.5,0.125,7]", b"]")
    old = Account.from_bytes(earlier[:5] + len(text).to_bytes(4, "little") + text)
    assert (old.cpu_seconds, old.count("a").sampled_rows, old.count("a").crossed) == (0.0, 0, 0)


class TestTasks:
    def test_moving_is_what_is_left_of_the_cpu_of_a_process(self) -> None:
        operators = {
            "a": OperatorObservation(1000, 2000, 0, 0, 0.5),
            "out": OperatorObservation(2000, 2000, 0, 0, 0.1),
        }
        account = ProcessAccount(
            cpu_seconds=1.0,
            held_mb=7.0,
            sampling_seconds=0.01,
            operators=operators,
            sampled={"a": (50, 0.02, 0.01), "out": (2000, 0.1, 0.05)},
            crossed={"a": 1000},
        )
        tasks = tasks_of(account, 2.0)
        # code: 1000 rows of 0.01 / 50, and 0.05 of the sink; idle: 0.02 of a core for 2 s
        moving = 1.0 - 0.2 - 0.05 - 0.01 - 2 * IDLE_CORES
        # memory by rows handled: 3000 of 7000
        assert tasks["a"].moving_cpu_seconds == pytest.approx(moving)
        found = replace(tasks["a"], moving_cpu_seconds=0.0)
        assert found == TaskObservation(1000, 3000, 50, 0.02, 0.01, 1000, 0.0, 3.0)
        assert tasks["out"].moving_cpu_seconds == 0

    def test_rows_of_a_source_here_have_their_part(self) -> None:
        seen = {"a": OperatorObservation(300, 100, 0, 0, 0.1)}
        tasks = tasks_of(ProcessAccount(0.5, 0.0, 0.0, seen, {}, {"a": 100}, ingested=300), 0.0)
        assert tasks["a"].moving_cpu_seconds == pytest.approx(0.5 * 100 / 400)

    @pytest.mark.parametrize("crossed", [0, 10])
    def test_nothing_measured_is_nothing_and_never_negative(self, crossed: int) -> None:
        seen = {"a": OperatorObservation(10, 10, 0, 0, 0.1)}
        tasks = tasks_of(ProcessAccount(0.0, 0.0, 5.0, seen, {"a": (0, 0.0, 0.0)}, {"a": crossed}), 9.0)
        assert tasks["a"] == TaskObservation(10, 20, 0, 0.0, 0.0, crossed, 0.0, 0.0)


def report_of(**tasks: TaskObservation) -> Report:
    return Report(100.0, 100.0, 0.0, 10.0, {}, 0, {}, {}, Audit(1000, 0, 0, 0, 0), tasks=tasks)


class TestProfiles:
    def test_costs_of_a_row(self) -> None:
        found = task_profiles(
            report_of(
                # a call takes 10 ms of which 1 ms is CPU; 2000 rows crossed for 0.4 s of CPU; 5 MB at 300 rows/s
                waits=TaskObservation(1000, 3000, 50, 0.5, 0.05, 2000, 0.4, 5.0),
                # a call takes 10 ms of which 6 ms is CPU: the rest it waited for the core
                computes=TaskObservation(1000, 1000, 50, 0.5, 0.3, 0, 0.0, 0.0),
                idle=TaskObservation(0, 0, 0, 0.0, 0.0, 0, 0.0, 0.0),
                few=TaskObservation(4, 4, 4, 0.1, 0.1, 4, 0.1, 0.0),
            )
        )
        assert set(found) == {"waits", "computes"}
        waits, computes = found["waits"], found["computes"]
        assert waits.sojourn_seconds == pytest.approx(0.01)
        assert waits.processing_cpu == pytest.approx(0.1)  # points: 100 * 1 ms
        assert waits.moving_cpu == pytest.approx(0.02)  # 100 * 0.4 / 2000
        assert waits.memory_mb == pytest.approx(5.0 / 300)
        assert computes.sojourn_seconds == pytest.approx(0.006)
        assert computes.processing_cpu == pytest.approx(0.6)
        assert computes.provenance["moving_cpu"] == "unknown: no row crossed between processes"


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    made = LocalLauncher()
    yield made
    made.close()


def waits_5_ms(row: dict[str, Any]) -> dict[str, Any]:
    pause(0.005)
    return row


def test_a_run_of_processes_measures_what_its_rows_cost(tmp_path: Path, launcher: LocalLauncher) -> None:
    code = replace(code_of(line(Logic(waits_5_ms), Logic(lambda row: row)), tmp_path), sample_every=20)
    plan = laid_out(code, {"src": {A: 1}, "op0": {A: 2}, "op1": {B: 1}, "out": {B: 1}})
    run = conductor(tmp_path, plan, 200.0, launcher)
    observer = EpochObserver(run, Load.constant(200.0), ("src",), samples=True)
    try:
        turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        for _ in range(8):
            turn_for(run, 0.5)
            observer.look()
        wait(run, run.drain(end=True))
    finally:
        run.close()
    began = run.flowing_since or 0.0
    report = summarise_epochs(observer.epochs, began, began + 60, 0.5, 200.0, Audit(0, 0, 0, 0, 0), 0)
    tasks, profiles = report.tasks, task_profiles(report)
    # every operator is a process of its own here: each row comes in and goes out
    assert tasks["op0"].crossed == pytest.approx(2 * tasks["op0"].rows, rel=0.3)
    assert tasks["src"].crossed == pytest.approx(tasks["src"].rows, rel=0.3)
    assert tasks["op0"].sampled_rows == pytest.approx(tasks["op0"].rows / 20, rel=0.5)
    assert 0.005 <= profiles["op0"].sojourn_seconds < 0.2
    # waiting is no CPU
    assert profiles["op0"].processing_cpu < 100 * 0.0025
    assert profiles["op0"].moving_cpu > 0
    assert profiles["out"].processing_cpu > 0
    assert set(report.processes) == {"src@n1/0", "op0@n1/0", "op1@n2/0", "out@n2/0"}
    assert all(0 < cores < 1.5 for cores in report.processes.values())
    assert 0 < report.sampling_cores < 0.05
