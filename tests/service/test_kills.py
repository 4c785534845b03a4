"""kill -9 of a controller under a random workload, again and again: nothing that was answered is lost, no decision that
somebody read changes, no slot has two owners. `--long` kills it 200 times."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.base.clock import Stopwatch, pause
from penstock.service.local import RUNNING, SETTINGS, TOKEN, ServiceSettings, read_running, write_spec

ENDED = {"killed", "ending"}
TOKENS = ("token", "read-token", "attach-token")
PATIENCE = 90.0


@dataclass
class Killed:
    """A controller that is started and killed, and what its answers have promised."""

    folder: Path
    seed: int
    url: str = ""
    promised: dict[str, tuple[bool, int | None]] = field(default_factory=dict)
    """Whether a pipeline is there, and its priority if that is known, by name; no entry: unknown."""
    seen: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Decisions that were read, by number."""
    answers: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        for name in TOKENS:
            (self.folder / name).write_text(f"{name}-{'x' * 32}\n")
        settings = ServiceSettings(nodes=8, slots=2, unit_slots=1, speed=30.0)
        write_spec(self.folder / SETTINGS, settings)

    def start(self) -> None:
        (self.folder / RUNNING).unlink(missing_ok=True)
        with (self.folder / "out.log").open("wb") as log:
            command = [sys.executable, "-m", "penstock.service.server", str(self.folder)]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        watch = Stopwatch()
        while (running := read_running(self.folder)) is None:
            assert self.process.poll() is None, (self.folder / "out.log").read_text()
            assert watch.seconds() < PATIENCE
            pause(0.02)
        self.url = running.url

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        token = (self.folder / TOKEN).read_text().strip()
        request = urllib.request.Request(  # noqa: S310 - our own address
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, None

    def work(self, worker: int, random: Random, stop: threading.Event) -> None:
        """Requests about this worker's own pipelines until the controller is gone."""
        while not stop.is_set():
            name, level = f"w{worker}p{random.randrange(4)}", random.choice((1, 2, 3))
            kind = random.random()
            before = self.promised.pop(name, None)  # unknown until there is an answer
            try:
                if kind < 0.4:
                    body = {"name": name, "pipeline": "linear", "target": {"rate": 20}, "priority": level}
                    status, answer = self.call("POST", "/v1/pipelines", body)
                elif kind < 0.8:
                    status, answer = self.call("PATCH", f"/v1/pipelines/{name}", {"priority": level})
                else:
                    status, answer = self.call("DELETE", f"/v1/pipelines/{name}")
            except (OSError, HTTPException, ValueError):
                return
            if status < 300 and kind >= 0.8:
                self.promised[name] = (False, None)
            elif status < 300 and answer["state"] not in ENDED:
                self.promised[name] = (True, answer["initial_priority"])
            elif status >= 400 and before is not None:
                self.promised[name] = before
            self.answers += status < 300

    def read_decisions(self) -> None:
        try:
            _, answer = self.call("GET", "/v1/views/decisions?most=200")
        except (OSError, HTTPException, ValueError):
            return
        for row in answer["decisions"]:
            self.seen[row["number"]] = (row["at"], row["kind"], row["from"], row["to"], row["why"])

    def check(self) -> None:
        _, listed = self.call("GET", "/v1/pipelines")
        there = {each["name"]: each["initial_priority"] for each in listed if each["state"] not in ENDED}
        for name, (is_there, level) in self.promised.items():
            assert (name in there) == is_there, name
            assert not is_there or there[name] == level, name
        slots = [tuple(slot) for each in listed for slot in each["slots"]]
        assert len(slots) == len(set(slots))
        with closing(sqlite3.connect(f"file:{self.folder / 'store.db'}?mode=ro", uri=True, timeout=10)) as store:
            assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            rows = store.execute(
                'SELECT number, at, kind, "before", "after", why FROM decisions ORDER BY number'
            ).fetchall()
            numbers = [row[0] for row in rows]
            assert numbers == list(range(1, len(numbers) + 1))
            stored = {row[0]: row[1:] for row in rows}
            assert {number: stored.get(number) for number in self.seen} == self.seen
            owners: dict[tuple[str, int], str] = {}
            held = "SELECT node, slot, pipeline FROM holdings WHERE kind IN ('requested', 'held', 'may_hold')"
            for node, slot, pipeline in store.execute(held):
                assert owners.setdefault((node, slot), pipeline) == pipeline


def kill_again_and_again(folder: Path, kills: int, seed: int) -> Killed:
    killed = Killed(folder, seed)
    random = Random(seed)  # noqa: S311
    try:
        for round_number in range(kills):
            killed.start()
            killed.check()
            stop = threading.Event()
            workers = [
                threading.Thread(target=killed.work, args=(number, Random(f"{seed}/{round_number}/{number}"), stop))  # noqa: S311
                for number in range(2)
            ]
            for worker in workers:
                worker.start()
            enough, watch = killed.answers + random.randrange(1, 30), Stopwatch()
            while killed.answers < enough:  # not by time: a busy machine answers little
                assert watch.seconds() < PATIENCE
                pause(0.005)
            killed.read_decisions()
            killed.kill()
            stop.set()
            for worker in workers:
                worker.join()
        killed.start()
        killed.check()
    finally:
        killed.kill()
    return killed


def test_five_kills(tmp_path: Path) -> None:
    killed = kill_again_and_again(tmp_path, 5, 7)
    assert killed.answers >= 5
    assert killed.seen


@pytest.mark.long("200 kills take about ten minutes")
def test_two_hundred_kills(tmp_path: Path) -> None:
    killed = kill_again_and_again(tmp_path, 200, 11)
    assert killed.answers > 1000
