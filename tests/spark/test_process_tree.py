"""What a tree of processes uses, looked at from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from penstock.spark.session.process_tree import (
    MachineUsage,
    cpu_between,
    cpu_by_process,
    engine_cpu,
    java_process,
    share_given,
    share_of_others,
    tree_cpu_seconds,
    tree_usage,
)

BUSY = "sum(range(6_000_000))"


def test_a_child_counts_while_it_runs_and_after_it_ended() -> None:
    own = psutil.Process()
    alone = tree_usage(own)
    child = subprocess.Popen(
        [sys.executable, "-c", f"{BUSY}; print('done', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"done\n"
    with_child = tree_usage(own)
    of_child = tree_usage(psutil.Process(child.pid))
    assert of_child.cpu_seconds >= 0.05
    assert with_child.cpu_seconds - alone.cpu_seconds >= 0.9 * of_child.cpu_seconds
    assert with_child.memory_mb > alone.memory_mb + 5
    child.communicate(b"\n")
    after = tree_usage(own)
    assert after.cpu_seconds >= with_child.cpu_seconds
    assert after.memory_mb < with_child.memory_mb


# process 1 used 2 s more, 3 is new with 1 s; 2 ended, which takes nothing back
def test_cpu_between_two_looks() -> None:
    assert cpu_between({1: 10.0, 2: 50.0}, {1: 12.0, 3: 1.0}) == 3.0
    assert cpu_between({1: 10.0}, {}) == 0


def test_a_tree_without_one_of_its_branches() -> None:
    own = psutil.Process()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    branch = psutil.Process(child.pid)
    assert {own.pid, child.pid} <= set(cpu_by_process(own))
    assert child.pid not in cpu_by_process(own, without=branch)
    child.communicate(b"\n")


# 2 cores for 10 s: 20 core seconds. 15 used, 5 of them by us: others had half of the machine
@pytest.mark.parametrize(("used", "own", "expected"), [(15, 5, 0.5), (5, 5, 0.0), (4, 5, 0.0), (20, 0, 1.0)])
def test_the_share_of_others(used: float, own: float, expected: float) -> None:
    before = MachineUsage(there=1000, used=300, own={1: 70, 2: 9})
    after = MachineUsage(there=1020, used=300 + used, own={1: 70 + own})
    assert share_of_others(before, after) == expected


# cores were wanted for 10 s; for 2 of them the host did not give one
@pytest.mark.parametrize(("taken", "expected"), [(0, 1.0), (2, 0.8), (10, 0.0), (11, 0.0)])
def test_the_share_the_host_gives(taken: float, expected: float) -> None:
    before = MachineUsage(there=1000, used=300, own={}, taken=40)
    after = MachineUsage(there=1020, used=310, own={}, taken=40 + taken)
    assert share_given(before, after) == pytest.approx(expected)


def test_no_time_no_share() -> None:
    look = MachineUsage.now()
    assert share_of_others(look, look) == 0
    assert share_given(look, look) == 1
    assert 0 < sum(look.own.values()) <= look.used <= look.there


def session_whose_java_says(pid: int) -> Any:
    handle = SimpleNamespace(current=lambda: SimpleNamespace(pid=lambda: pid))
    java = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(ProcessHandle=handle)))
    # nobody here started it: so it is below spark-submit
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=java, _gateway=SimpleNamespace(proc=None)))


@pytest.mark.parametrize("pid", [2**22 + 1, os.getpid()], ids=["gone", "no Java"])
def test_a_java_process_that_is_not_seen_from_here_is_unknown(pid: int) -> None:
    assert java_process(session_whose_java_says(pid)) is None
    assert tree_cpu_seconds(None) is None


# 30 - 10 - 12 core seconds in 4 s: two cores
def test_what_is_unknown_of_java_is_unknown_of_the_engine() -> None:
    assert engine_cpu(10.0, 30.0, own=12.0, elapsed=4.0) == 2.0
    assert engine_cpu(10.0, 30.0, own=25.0, elapsed=4.0) == 0.0
    assert engine_cpu(None, None, own=1.0, elapsed=4.0) is None


def test_java_says_its_number(session: Any) -> None:
    java = java_process(session)
    assert java is not None
    assert java.pid == session.sparkContext._gateway.proc.pid
    # it counts once, whether it stands below this process or above
    assert MachineUsage.now(java).own.keys() >= {java.pid, os.getpid()}


def test_this_process_is_none_of_those_below_java() -> None:
    assert os.getpid() not in cpu_by_process(psutil.Process(os.getppid()))
