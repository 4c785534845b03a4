"""Code of users: it runs elsewhere, for a limited time, and nobody waits for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.base.clock import Stopwatch
from penstock.control import user_code
from penstock.control.code_hooks import CodeSignals
from penstock.control.core.messages import AddTrigger, DisableTrigger, Readings, TimePassed
from penstock.control.core.records import PipelineState, Trigger
from penstock.control.errors import FieldError
from penstock.control.user_code import CodeAnswer, UserCode
from penstock.testing.controller import ControllerBench as Bench
from penstock.testing.controller import RatePerUnit as PerUnit
from penstock.testing.controller import asked, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

SOON = 30.0
CONDITIONS = """
import json, os, sys, time

def late(readings):
    return readings["backlog"] > 5
def raises(readings):
    return 1 / 0
def leaves(readings):
    sys.exit("bye")
def dies(readings):
    os._exit(3)
def hangs(readings):
    time.sleep(600)
def prints(readings):
    print('{"answer": 1.0}', flush=True); sys.stderr.write("x" * 100_000); return False
def forks(readings):
    os.fork(); return True
def odd(readings):
    class Odd:
        def __bool__(self): raise SystemExit
    return Odd()
def says(readings):
    os.write(3, b"nonsense\\n"); os.write(4, b"nonsense\\n"); return True
def spawns(readings):
    open(os.environ["SPAWNED"], "w").write(str(os.getpid())); time.sleep(600)
def no(verdict):
    return f"{verdict['kind']} to {verdict['units']} is\\ntoo much"
number = 3
"""


@pytest.fixture
def code(tmp_path: Path) -> Iterator[UserCode]:
    (tmp_path / "conditions.py").write_text(CONDITIONS)
    (tmp_path / "sleepy.py").write_text("import time\ntime.sleep(600)\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "json.py").write_text("raise SystemError('a stranger')\n")
    made = UserCode(tmp_path, seconds=1.0, import_seconds=5.0)
    yield made
    made.close()


def answered(code: UserCode, name: str, *, truth: bool = True, **values: Any) -> CodeAnswer:
    watch, pause = Stopwatch(), threading.Event()
    code.ask(name, name, values, truth=truth)
    assert watch.seconds() < 0.5, "whoever asks does not wait"
    while (answer := code.answer(name)) is None and watch.seconds() < SOON:
        pause.wait(0.01)
    assert answer is not None
    return answer


class TestAsking:
    def test_is_answered_later(self, code: UserCode) -> None:
        assert answered(code, "conditions:late", backlog=9.0) == CodeAnswer(1.0)
        assert answered(code, "conditions:no", truth=False, kind="grow", units=7) == CodeAnswer("grow to 7 is too much")

    @pytest.mark.parametrize(
        ("function", "reason"),
        [
            ("raises", "ZeroDivisionError: division by zero"),
            ("leaves", "SystemExit: bye"),
            ("dies", "it has ended its process"),
            ("hangs", "it takes more than 1 s to answer"),
            ("odd", "SystemExit"),
            ("nothing", "AttributeError"),
            ("number", "expected a function, found int"),
        ],
    )
    def test_what_fails_is_said_in_words(self, code: UserCode, function: str, reason: str) -> None:
        answer = answered(code, f"conditions:{function}", backlog=9.0)
        assert reason in str(answer.error)

    def test_code_may_print_fork_and_write_where_it_should_not(self, code: UserCode) -> None:
        assert answered(code, "conditions:prints", backlog=1.0) == CodeAnswer(0.0)
        assert answered(code, "conditions:forks", backlog=1.0) == CodeAnswer(1.0)
        assert answered(code, "conditions:says", backlog=1.0).value in {None, 1.0}

    def test_what_hangs_is_ended_and_started_anew(
        self, code: UserCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPAWNED", str(tmp_path / "pid"))
        assert answered(code, "conditions:spawns", backlog=1.0).error is not None
        first = int((tmp_path / "pid").read_text())
        assert not Path(f"/proc/{first}").exists()
        code.forget("conditions:spawns")
        assert answered(code, "conditions:spawns", backlog=1.0).error is not None
        assert int((tmp_path / "pid").read_text()) != first

    def test_modules_of_the_folder_take_the_place_of_no_others(self, code: UserCode) -> None:
        assert answered(code, "json:dumps", backlog=1.0) == CodeAnswer(1.0)

    def test_processes_are_few(self, code: UserCode, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(user_code, "MOST_PROCESSES", 2)
        for function in ("late", "prints", "forks", "late"):
            assert answered(code, f"conditions:{function}", backlog=9.0).error is None
        assert len(code._workers) == 2

    def test_an_answer_grows_old(self, code: UserCode) -> None:
        answered(code, "conditions:late", backlog=9.0)
        assert code.answer("conditions:late", within=SOON) == CodeAnswer(1.0)
        assert code.answer("conditions:late", within=0.0) is None


class TestChecking:
    def test_code_that_is_there_passes(self, code: UserCode) -> None:
        code.check("conditions:late", "kind")

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("conditions:nothing", "AttributeError"),
            ("nothing:late", "No module named"),
            (".x:y", "TypeError"),
            ("leaving:x", "SystemExit"),
            ("sleepy:x", "more than 0.5 s to import"),
            ("conditions:number", "expected a function"),
            ("a\x00b:c", "cannot be started"),
        ],
    )
    def test_code_that_is_not_is_refused_by_its_field(
        self, tmp_path: Path, code: UserCode, name: str, reason: str
    ) -> None:
        impatient = UserCode(tmp_path, import_seconds=0.5 if name.startswith("sleepy") else 10.0)
        with pytest.raises(FieldError, match=reason) as refused:
            impatient.check(name, "kind")
        assert refused.value.field == "kind"


class TestTriggers:
    def run(self, bench: Bench, signals: CodeSignals, until: Any) -> None:
        watch, pause = Stopwatch(), threading.Event()
        while not until() and watch.seconds() < SOON:
            bench.now += 1
            observed = [*bench.executors.observe(bench.now), Readings("a", {"backlog": 9.0})]
            bench.tell(*signals(bench.state, observed), TimePassed())
            pause.wait(0.02)
        assert until()

    def bench(self, function: str) -> Bench:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("a", desired=1))
        bench.run(10)
        bench.tell(AddTrigger("a", Trigger(0, "code", code=f"conditions:{function}", for_seconds=1.0)))
        return bench

    def test_code_switches_its_trigger(self, code: UserCode) -> None:
        bench = self.bench("late")
        self.run(bench, CodeSignals(code), lambda: bench["a"].triggers[0].on)
        assert bench["a"].priority == 1

    @pytest.mark.parametrize("function", ["leaves", "hangs", "dies"])
    def test_code_that_fails_is_disabled_and_its_pipeline_runs_on(self, code: UserCode, function: str) -> None:
        bench = self.bench(function)
        self.run(bench, CodeSignals(code), lambda: not bench["a"].triggers[0].enabled)
        assert bench.at("a") is PipelineState.ACTIVE
        assert next(event.why for event in bench.events if event.after == "disabled").startswith(
            "trigger 1: conditions:"
        )

    def test_an_answer_to_another_controller_is_not_taken(self, code: UserCode) -> None:
        CodeSignals(code)(self.bench("leaves").state, [Readings("a", {"backlog": 9.0})])
        watch, pause = Stopwatch(), threading.Event()
        while not code._answers and watch.seconds() < SOON:
            pause.wait(0.01)
        other = self.bench("late")
        self.run(other, CodeSignals(code), lambda: other["a"].triggers[0].on)

    def test_a_trigger_that_is_gone_needs_nothing(self) -> None:
        bench = Bench(cluster(2), PerUnit())
        bench.tell(asked("a", desired=1), DisableTrigger("a", 9, "late"), DisableTrigger("b", 1, "late"))
        assert bench["a"].triggers == ()


class TestVeto:
    def grown(self, veto: str) -> Bench:
        """A pipeline whose load has become too much for its unit."""
        bench = Bench(cluster(4), PerUnit())
        bench.tell(asked("a", rate=5.0, load="steps:30x5,1x25", elastic={"veto": veto}))
        watch, pause = Stopwatch(), threading.Event()
        bench.run(60)
        while watch.seconds() < SOON and not self.settled(bench):
            bench.run(2)
            pause.wait(0.02)
        return bench

    def settled(self, bench: Bench) -> bool:
        return len(bench["a"].held) > 1 or any("vetoed" in event.why for event in bench.events)

    @pytest.fixture(autouse=True)
    def _here(self, code: UserCode, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(user_code, "USER_CODE", code)

    def test_forbids_a_change_with_its_reason(self) -> None:
        bench = self.grown("conditions:no")
        assert len(bench["a"].held) == 1
        assert any("vetoed: grow to" in event.why for event in bench.events)

    @pytest.mark.parametrize("function", ["leaves", "hangs", "raises"])
    def test_one_that_fails_forbids_nothing_and_is_said(self, function: str) -> None:
        bench = self.grown(f"conditions:{function}")
        assert len(bench["a"].held) > 1
        assert any(event.kind == "veto" and "it forbids nothing" in event.why for event in bench.events)


def test_no_process_is_left_behind(code: UserCode) -> None:
    answered(code, "conditions:late", backlog=9.0)
    [worker] = code._workers.values()
    process = worker._process._process
    assert process is not None
    code.close()
    watch, pause = Stopwatch(), threading.Event()
    while process.poll() is None and watch.seconds() < SOON:
        pause.wait(0.01)
    assert process.poll() is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
