"""A controller in a process of its own: used from Python and the command line, killed, started again, ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.base.processes import find
from penstock.cli.main import run
from penstock.service.local import read_running
from penstock.service.server import listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    yield tmp_path
    penstock.down()


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    watch = Stopwatch()
    while not true():
        assert watch.seconds() < seconds, "it did not come true"
        pause(0.1)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_from_up_to_down(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "up", "--simulated", "--nodes", "4", "--speed", "20")
    assert set(found) == {"url", "token_file", "read_token_file", "attach_token_file", "master", "nodes"}
    for name in ("token_file", "read_token_file", "attach_token_file"):
        assert Path(found[name]).stat().st_mode & 0o777 == 0o600
    assert run(["controller", "up", "--simulated"]) == 1
    assert "a controller runs already at http" in capsys.readouterr().err

    answer(capsys, "submit", "orders", "linear", "--desired", "3", "--load", "10")
    with penstock.connect() as client:
        steps = client.watch()
        assert [one["name"] for one in next(steps)["pipelines"]] == ["orders"]
        until(lambda: client.show("orders")["held"] == 3)
        client.submit("late", "linear", desired=2, load=5)
        heard = (event for step in steps for event in step["events"])
        assert next(event for event in heard if event["subject"] == "late")["to"] == "submitted"
        # 4 nodes in proportion to 3 and 2: 2.4 and 1.6
        until(lambda: client.show("late")["held"] == 2)
        with pytest.raises(penstock.RequestRefusedError, match="no pipeline 'x'"):
            client.kill("x")
        with pytest.raises(penstock.BadInputError, match=r"target\.rate: expected a number, found nan"):
            client.target("late", rate=float("nan"))
        with pytest.raises(penstock.BadInputError, match="sharing: unknown sharing policy 'odd'"):
            client.policy("odd")

    running = read_running(folder / "controller")
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    until(lambda: find(running) is None)
    assert run(["controller", "up", "--simulated", "--nodes", "4", "--speed", "20"]) == 0
    assert "goes on     with 2 pipelines of its store" in capsys.readouterr().out
    with penstock.connect() as client:
        # their loads go on from now, not from when clocks began
        until(lambda: client.show("orders")["backlog"] is not None)
        assert client.show("orders")["backlog"] < 100_000
        until(lambda: {one["name"]: one["held"] for one in client.list()} == {"orders": 2, "late": 2})
        assert [one["kind"] for one in client.decisions("orders")] == ["start", "shrink"]
    assert answer(capsys, "pause", "orders")["paused"]
    assert answer(capsys, "trigger", "add", "late", "arrival-rate", "--above", "5")[0]["id"] == 1
    assert len(answer(capsys, "nodes", "--add", "1")) == 5
    assert answer(capsys, "policy")["sharing"] == "fair-priority"
    for verb in (["pipelines", "list"], ["show", "late"], ["decisions"], ["events"], ["nodes"]):
        assert run(verb) == 0
    assert "late" in capsys.readouterr().out
    for words in ([], ["--json"]):
        check_watching(words, capsys)

    again = read_running(folder / "controller")
    assert again is not None
    created = psutil.Process.create_time
    with pytest.MonkeyPatch.context() as clock:
        # start times that are computed from the clock, after it was set forward
        clock.setattr(psutil.Process, "create_time", lambda process: created(process) + 3)
        assert answer(capsys, "down")["ended"].startswith("http://127.0.0.1:")
    assert not psutil.pid_exists(again.pid)
    assert answer(capsys, "down") == {"ended": None}


def check_watching(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`list --watch` says at once what changes, also into a pipe, and ends with Ctrl-C."""
    command = [str(Path(sys.executable).with_name("penstock")), "pipelines", "list", "--watch", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        patience = threading.Timer(30, watching.kill)
        patience.start()
        assert watching.stdout is not None
        assert any("late" in line for line in watching.stdout)
        answer(capsys, "priority", "late", "3" if words else "1")
        assert any("late" in line for line in watching.stdout)
        watching.send_signal(signal.SIGINT)
        patience.cancel()
    assert watching.returncode == 130


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["controller", "up", "--simulated", "--policy", "odd"], "unknown sharing policy 'odd'"),
        (["controller", "up", "--simulated", "--slots", "3", "--unit-slots", "2"], "2 does not divide the 3 slots"),
        (["controller", "up", "--simulated", "--nodes", "0"], "expected a whole number"),
        (["controller", "up", "--simulated", "--store", "odd://x"], "odd"),
        (["pipelines", "list"], "no controller runs here"),
        (["pipelines", "list", "--url", "http://127.0.0.1:9"], "--token-file"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert run(words) in {1, 2}
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


def test_an_answer_is_sent_at_once() -> None:
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
