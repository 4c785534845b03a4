"""A siege of the controller: random requests, half-open connections, kills, and a canary that must be decided upon.

    ./run bench siege [--json] [--seed 1] [--seconds 600] [--requests 50000] [--kills 200] [--half-open 2000]

A `penstock controller up --simulated` of its own is attacked three times over, by clients that hold its tokens:

doors     `--half-open` connections that never finish their header and `--what-ifs` large what-ifs are held while
          ordinary reads and writes are timed: `worst_answer_ms`
requests  `--clients` send bursts of random requests (bench/siege_requests.py). Every few seconds a canary asks for a
          node and submits a small pipeline: unless the node joins and the pipeline runs, or waits with a reason, within
          `--patience` seconds, the controller is `silenced`; `health_lied` counts how often /health said ok then
kills     SIGKILL at random moments under load; `penstock controller up` starts it again.
          `lost_decisions` are those that a reader had seen and that are gone, changed or leave a gap in the numbers,
          `lost_changes` requests that were answered 2xx and are not in force

`double_held` counts slots that two pipelines hold in one answer of `GET /v1/pipelines`. A controller that is silenced,
dies or does not start again is replaced by one with an empty store, so that the siege goes on and finds the next fault;
stderr says how it happened. Exit code 1 unless all figures that must be zero are.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, pause
from siege_books import Bookkeeper
from siege_controller import Request, Siege, StartError
from siege_requests import Attacker, write_material

if TYPE_CHECKING:
    from collections.abc import Callable

ZEROS = (
    "five_hundreds",
    "silenced",
    "health_lied",
    "died",
    "failed_starts",
    "lost_decisions",
    "lost_changes",
    "double_held",
)
MAX_ANSWER_MS = 500.0
KEPT_DECISIONS = 19_000
"""Decisions are kept for the newest 20,000; a reader does not ask for older ones."""
WHAT_IFS = [
    (10_000, 1800),
    (3000, 1800),
    (1000, 1800),
    (1000, 600),
    (300, 600),
    (100, 600),
    (100, 120),
    (20, 60),
    (6, 20),
]
"""Nodes and seconds, from what nobody should accept to what everybody must."""
OPTIONS = ("--nodes", "6", "--slots", "2", "--speed", "10")


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@dataclass
class Figures:
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    timed: list[float] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=400))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, why: str = "", count: int = 1) -> None:
        """Count a fault, and print each kind of it once or a few times."""
        with self.lock:
            self.counts[name] += count
            if why and self.counts[name] <= 40:
                say(f"{name}: {why}")


@dataclass
class Reader:
    """Decisions as somebody saw them who reads all the time, and slots that two pipelines hold at once."""

    figures: Figures
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)
    newest_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, siege: Siege) -> None:
        self.look_at_slots(siege)
        with self.lock:
            for decision in self.decisions(siege, self.newest_at) or ():
                self.compare(decision)
                self.newest_at = max(self.newest_at, decision["at"])

    def decisions(self, siege: Siege, since: float) -> list[dict[str, Any]] | None:
        return siege.rows(f"/v1/decisions?since={since!r}", holder="read")

    def compare(self, decision: dict[str, Any]) -> None:
        """Compare a decision with what was seen before; its overhead is measured later and may be added."""
        number = decision["number"]
        before = self.seen.get(number)
        if before:
            same = {**decision, "overhead": None} == {**before, "overhead": None}
            if not same or (before["overhead"] and before["overhead"] != decision["overhead"]):
                self.figures.add("lost_decisions", f"decision {number} changed: {before} -> {decision}")
        self.seen[number] = decision

    def check_all(self, siege: Siege, since: float = 0.0) -> None:
        """Read decisions again, after a restart: each that was seen must be there, and no number may be missing."""
        with self.lock:
            self.check_since(siege, since)

    def check_since(self, siege: Siege, since: float) -> None:
        answered = self.decisions(siege, since)
        if answered is None:
            self.figures.add("unanswered", "decisions after a restart")
            return
        for decision in answered:
            self.compare(decision)
        found = {decision["number"] for decision in answered}
        oldest = max(self.seen, default=0) - KEPT_DECISIONS
        expected = {number for number, one in self.seen.items() if number > oldest and one["at"] >= since}
        lost = sorted(expected - found)
        gaps = [before for before, after in pairwise(sorted(found)) if after != before + 1]
        if lost or gaps:
            self.figures.add("lost_decisions", f"{lost[:5]} gone, gaps after {gaps[:5]}", len(lost) + len(gaps))

    def look_at_slots(self, siege: Siege) -> None:
        answer = siege.ask("GET", "/v1/pipelines", holder="read")
        if answer is None or answer.status != 200:
            return
        holders: dict[tuple[str, int], list[str]] = {}
        for row in answer.document:
            for node, slot in row["slots"]:
                holders.setdefault((node, slot), []).append(f"{row['name']} ({row['engine']}, {row['state']})")
        for slot, names in holders.items():
            if len(names) > 1:
                claimed = all("(attached," in name for name in names[1:]) or "(attached," in names[0]
                self.figures.add("double_claimed" if claimed else "double_held", f"{slot} by {names}")


class Bench:
    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder = asked, folder
        self.figures = Figures(asked.seed)
        self.code = folder / "code"
        self.code.mkdir()
        self.files = write_material(self.code)
        self.draw = random.Random(f"{asked.seed} bench")  # noqa: S311
        self.sieges = 0
        self.protected: set[str] = set()
        self.done = threading.Event()
        self.in_flight = 0
        self.reader = Reader(self.figures)
        planning = Siege(folder, (), self.code).command("plan", "linear", "--rate", "10", "-o", "plan.json")
        self.siege = self.fresh()
        planning.communicate()
        self.plan: dict[str, Any] = json.loads((self.code / "plan.json").read_text())

    def fresh(self) -> Siege:
        """A controller with an empty store."""
        self.sieges += 1
        siege = Siege(self.folder / f"state-{self.sieges}", OPTIONS, self.code)
        siege.folder.mkdir()
        siege.start()
        return siege

    def replace(self) -> None:
        """Leave a controller that is lost, and go on with a fresh one."""
        self.siege.stop()
        self.reader = Reader(self.figures)
        self.protected.clear()
        self.siege = self.fresh()

    def threads(self, works: list[Callable[[], None]]) -> list[threading.Thread]:
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        return threads

    # requests and the canary

    def attack(self, number: int, per_second: float) -> None:
        """Send bursts at a mean rate until the bench is done."""
        attacker = Attacker(f"{self.asked.seed} {number}", self.files, self.plan, self.protected)
        watch, sent = Stopwatch(), 0
        while not self.done.is_set():
            attacker.hot = f"hot-{int(watch.seconds() / 4) % 3}"
            for request in attacker.burst():
                self.siege.up.wait(5)
                if self.done.is_set():
                    return
                self.send(request)
                sent += 1
            pause(max(0.0, min(3.0, sent / per_second - watch.seconds())))

    def send(self, request: Request) -> None:
        siege = self.siege
        if any(word in str(request) for word in self.asked.without):
            return
        generation = siege.generation
        answer = siege.send(request)
        killed = siege.generation != generation or not siege.up.is_set()
        with self.figures.lock:
            self.figures.counts["requests"] += 1
            status = str(answer.status) if answer else "killed" if killed else "left" if request.leaves else "none"
            self.figures.statuses[status] += 1
            if answer:
                self.figures.seconds.append(answer.seconds)
            self.figures.last.append(f"{status} {request}")
        if answer and answer.status >= 500:
            text = answer.body[:300].decode("utf-8", "replace")
            if killed:
                self.figures.add("five_hundreds_while_stopping")
            self.figures.add("five_hundreds", f"{answer.status} {request}\n    {text}\n{siege.log_about(text)}")
        if status == "none":
            self.figures.add("unanswered", str(request)[:300])

    def canaries(self) -> None:
        """Put up canaries until the bench is done; replace the controller when one is not decided upon."""
        number = 0
        while not self.done.is_set():
            number += 1
            why = self.canary(f"canary-{number}")
            if not self.siege.alive():
                self.lost("died", "the controller's process is gone")
            elif why:
                health = self.siege.ask("GET", "/health")
                if health and health.status == 200:
                    self.figures.add("health_lied", health.body.decode())
                self.lost("silenced", why)
            self.done.wait(self.draw.uniform(1, 4))

    def lost(self, name: str, why: str) -> None:
        recent = [line for line in list(self.figures.last)[-60:] if not line.startswith(("4", "left"))][-25:]
        self.figures.add(name, why)
        say("  last requests:\n    " + "\n    ".join(line[:400] for line in recent))
        say("  log: " + self.siege.log_tail().replace("\n", "\n    "))
        self.replace()

    def canary(self, name: str) -> str | None:
        """Ask for a node and submit a small pipeline; say why not if both are not decided upon in time.

        A request alone may decide on the pipeline. Only a loop that lives makes it active, or lets the node join.
        """
        siege, watch, patience = self.siege, Stopwatch(), float(self.asked.patience)
        node: str | None = None
        submitted = alive = decided = False
        trail = "no answer"
        while watch.seconds() < patience and siege.alive():
            if node is None and not alive:
                answer = siege.ask("POST", "/v1/nodes", {})
                if answer and answer.status == 202:
                    node = answer.document["nodes"][0]
                    self.protected.add(node)
                elif answer and answer.status in (409, 429):
                    alive = True
            if not submitted:
                body = {"name": name, "pipeline": "linear", "desired": 1, "minimum": 1, "priority": 1, "load": "1"}
                answer = siege.ask("POST", "/v1/pipelines", body)
                submitted = answer is not None and answer.status == 201
                trail = f"submit: {answer.status} {answer.body[:300]!r}" if answer else "submit: no answer"
            if submitted:
                answer = siege.ask("GET", f"/v1/pipelines/{name}")
                row = answer.document if answer and answer.status == 200 else {}
                decided = bool(row.get("assigned") or row.get("waiting") or row.get("state") == "killed")
                alive = alive or row.get("state") == "active"
                trail = f"pipeline {row.get('state')}, {'decided upon' if decided else 'not decided upon'}"
            if node and decided and not alive:
                states = {row["name"]: row["state"] for row in siege.rows("/v1/nodes") or ()}
                alive = states.get(node, "joining") != "joining"
            if decided and alive:
                break
            pause(0.3)
        with self.figures.lock:
            self.figures.counts["canaries"] += 1
        if not (decided and alive) or watch.seconds() > patience:
            joined = "joined" if alive else "did not join"
            return f"{name} after {watch.seconds():.0f} s: {trail}; node {node} {joined}"
        return self.clean_up(siege, name, node)

    def clean_up(self, siege: Siege, name: str, node: str | None) -> str | None:
        """Kill the canary and release its node; say why not if it is not dead in time."""
        watch, state = Stopwatch(), "unknown"
        killing = siege.ask("DELETE", f"/v1/pipelines/{name}")
        if node:
            siege.ask("DELETE", f"/v1/nodes/{node}")
            self.protected.discard(node)
        while watch.seconds() < 2 * self.asked.patience and siege.alive():
            answer = siege.ask("GET", f"/v1/pipelines/{name}")
            if answer and answer.status == 404:
                return None
            state = answer.document["state"] if answer and answer.status == 200 else f"unknown ({answer})"
            if state == "killed":
                return None
            killing = siege.ask("DELETE", f"/v1/pipelines/{name}")
            pause(0.3)
        return f"{name} was killed {watch.seconds():.0f} s ago and is {state}; DELETE: {killing}"

    def reading(self) -> None:
        while not self.done.is_set():
            self.siege.up.wait(5)
            self.reader.look(self.siege)
            self.done.wait(0.5)

    def run_requests(self) -> None:
        asked = self.asked
        if not asked.requests:
            return
        before, watch = self.figures.counts["requests"], Stopwatch()
        rate = 1.1 * asked.requests / asked.seconds / asked.clients
        works = [lambda number=number: self.attack(number, rate) for number in range(asked.clients)]
        threads = self.threads([*works, self.reading, self.canaries])
        due = 30.0
        while watch.seconds() < 3 * asked.seconds:
            sent = self.figures.counts["requests"] - before
            if watch.seconds() > asked.seconds and sent >= asked.requests:
                break
            if watch.seconds() > due:
                due += 30
                say(f"requests: {sent:,} after {watch.seconds():.0f} s, {dict(self.figures.counts)}")
            pause(0.2)
        self.done.set()
        for thread in threads:
            thread.join(60)
        self.done.clear()
        self.figures.counts["request_seconds"] = round(watch.seconds())
        if not self.siege.up.is_set() or not self.siege.alive():
            self.replace()
        self.reader.check_all(self.siege)

    # half-open connections and what-ifs

    def run_doors(self) -> None:
        asked, siege = self.asked, self.siege
        for number in range(8):
            load = f"{10 + number}"
            siege.ask(
                "POST", "/v1/pipelines", {"name": f"plain-{number}", "pipeline": "linear", "desired": 1, "load": load}
            )
        if not asked.half_open and not asked.what_ifs:
            return
        links: list[socket.socket] = []
        what_ifs = [lambda number=number: self.ask_what_if(number) for number in range(asked.what_ifs)]
        threads = self.threads([lambda: self.hold(links), *what_ifs])
        watch = Stopwatch()
        while watch.seconds() < 20 and len(links) < asked.half_open:
            pause(0.1)
        clients = self.threads([lambda: self.time_reads("read"), lambda: self.time_reads("write"), self.time_writes])
        self.done.wait(asked.door_seconds)
        say(f"doors: {len(links)} half-open, {len(self.figures.timed)} answers timed")
        self.done.set()
        for thread in [*clients, *threads]:
            thread.join(70)
        self.done.clear()
        for link in links:
            link.close()
        pause(1)

    def hold(self, links: list[socket.socket]) -> None:
        """Open connections that never finish their header; open another for each that the controller closes."""
        heads = [
            b"",
            b"G",
            b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: ",
            b"POST /login HTTP/1.1\r\nContent-Length: 9\r\n",
        ]
        while not self.done.is_set():
            while len(links) < self.asked.half_open and not self.done.is_set():
                link = socket.socket()
                link.settimeout(2)
                try:
                    link.connect((self.siege.host, self.siege.port))
                    link.sendall(heads[len(links) % len(heads)])
                    link.setblocking(False)
                except OSError:
                    link.close()
                    pause(0.05)
                    continue
                links.append(link)
                self.figures.counts["half_open_opened"] += 1
            self.figures.counts["half_open_held"] = max(self.figures.counts["half_open_held"], len(links))
            closed = []
            for link in links:
                try:
                    if link.send(b"x") and not link.recv(100):
                        closed.append(link)
                except BlockingIOError:
                    continue
                except OSError:
                    closed.append(link)
            for link in closed:
                links.remove(link)
                link.close()
            self.done.wait(3)

    def ask_what_if(self, number: int) -> None:
        """Keep one what-if going, as large as is accepted, each with another rate, by the token that may only read."""
        turn, size, wait = 0, 0, min(60.0, self.asked.door_seconds + 10)
        while not self.done.is_set():
            turn += 1
            nodes, seconds = WHAT_IFS[size]
            query = f"pipeline=plain-{number % 8}&nodes={nodes}&seconds={seconds}&rate={10 + number + turn / 1000}"
            with self.figures.lock:
                self.in_flight += 1
                self.figures.counts["what_ifs_held"] = max(self.figures.counts["what_ifs_held"], self.in_flight)
            answer = self.siege.send(Request("GET", f"/v1/views/what-if?{query}", holder="read", seconds=wait))
            with self.figures.lock:
                self.in_flight -= 1
                self.figures.counts[f"what_if_{answer.status if answer else 'none'}"] += 1
            if answer and answer.status >= 500:
                self.figures.add("five_hundreds", f"{answer.status} what-if {answer.body[:200]!r}")
            if answer and answer.status == 400:
                size = min(size + 1, len(WHAT_IFS) - 1)
            else:
                self.done.wait(0.5)

    def timed(self, method: str, path: str, body: Any = None, holder: str = "write") -> None:
        watch = Stopwatch()
        answer = self.siege.ask(method, path, body, holder, seconds=20)
        with self.figures.lock:
            self.figures.timed.append(watch.seconds())
        if answer is None:
            self.figures.add("unanswered", f"{method} {path} in {watch.seconds():.1f} s, beside half-open connections")
        elif answer.status >= 500:
            self.figures.add("five_hundreds", f"{answer.status} {method} {path} {answer.body[:200]!r}")

    def time_reads(self, holder: str) -> None:
        paths = [
            "/health",
            "/v1/pipelines",
            "/v1/pipelines/plain-1",
            "/v1/nodes",
            "/v1/decisions",
            "/metrics",
            "/v1/policy",
        ]
        turn = 0
        while not self.done.is_set():
            turn += 1
            self.timed("GET", paths[turn % len(paths)], holder=holder)
            self.done.wait(0.1)

    def time_writes(self) -> None:
        turn = 0
        while not self.done.is_set():
            turn += 1
            self.timed("PATCH", f"/v1/pipelines/plain-{turn % 8}", {"priority": 1 + turn % 4})
            self.timed("POST", "/v1/pipelines", {"name": f"short-{turn}", "pipeline": "linear", "desired": 1})
            self.timed("DELETE", f"/v1/pipelines/short-{turn}")
            self.done.wait(0.3)

    # kills

    def run_kills(self) -> None:
        asked, draw = self.asked, self.draw
        if not asked.kills:
            return
        keepers = self.bookkeepers()
        watch, started = Stopwatch(), []
        threads = self.threads(
            [
                *(lambda one=one: self.keep_books(keepers, one) for one in range(3)),
                *(lambda number=number: self.disturb(number) for number in range(2)),
                self.reading,
            ]
        )
        while self.figures.counts["kills"] < asked.kills:
            pause(draw.uniform(0.05, 1.5))
            self.siege.kill()
            self.figures.counts["kills"] += 1
            if draw.random() < 0.15 and self.figures.counts["kills"] < asked.kills:
                self.figures.counts["kills"] += self.siege.start_and_kill(draw.uniform(0.5, 4.0))
            start = Stopwatch()
            if not self.restart():
                self.replace()
                keepers[:] = self.bookkeepers()
                continue
            started.append(start.seconds())
            for keeper in keepers:
                keeper.check(self.siege)
            recent = sorted(self.reader.seen)[-500:]
            self.reader.check_all(self.siege, self.reader.seen[recent[0]]["at"] if recent else 0.0)
            if self.figures.counts["kills"] % 10 == 0:
                say(f"kills: {self.figures.counts['kills']} after {watch.seconds():.0f} s, {dict(self.figures.counts)}")
        self.done.set()
        for thread in threads:
            thread.join(60)
        self.reader.check_all(self.siege)
        self.done.clear()
        if started:
            self.figures.counts["start_ms"] = round(1000 * statistics.median(started))

    def bookkeepers(self) -> list[Bookkeeper]:
        complain = lambda text: self.figures.add("lost_changes", text)  # noqa: E731
        return [Bookkeeper(str(self.asked.seed), number, self.protected, complain) for number in range(3)]

    def restart(self) -> bool:
        """Start the controller again by the documented command, a second time if the first fails."""
        for _ in range(2):
            try:
                self.siege.start()
            except StartError as failed:
                self.figures.add("failed_starts", f"{failed}\n  log: {self.siege.log_tail()}")
            else:
                return True
        return False

    def keep_books(self, keepers: list[Bookkeeper], one: int) -> None:
        while not self.done.is_set():
            if self.siege.up.wait(1):
                keepers[one].act(self.siege)
            self.done.wait(0.03)

    def disturb(self, number: int) -> None:
        """Send random requests between the kills, except for what bookkeepers own."""
        attacker = Attacker(f"{self.asked.seed} kills {number}", self.files, self.plan, self.protected)
        while not self.done.is_set():
            for request in attacker.burst():
                if self.siege.up.wait(1) and not (request.path.startswith("/v1/policy") and request.method != "GET"):
                    self.send(request)
            self.done.wait(0.5)

    def report(self, seconds: float) -> dict[str, Any]:
        counts, timed = self.figures.counts, sorted(self.figures.timed)
        answers = sorted(self.figures.seconds)
        found = {name: counts[name] for name in ("requests", *ZEROS, "kills", "half_open_held")}
        return {
            **found,
            "worst_answer_ms": round(1000 * timed[-1]) if timed else None,
            "p99_answer_ms": round(1000 * timed[int(len(timed) * 0.99)]) if timed else None,
            "timed_answers": len(timed),
            "worst_request_ms": round(1000 * answers[-1]) if answers else None,
            "p99_request_ms": round(1000 * answers[int(len(answers) * 0.99)]) if answers else None,
            **{name: count for name, count in sorted(counts.items()) if name not in found},
            "statuses": dict(sorted(self.figures.statuses.items())),
            "memory_mb": round(self.siege.memory_mb()),
            "log_mb": round((self.siege.folder / "controller" / "controller.log").stat().st_size / 1e6, 1),
            "seconds": round(seconds),
            "seed": self.figures.seed,
        }


def parsed() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", action="store_true", help="print one JSON object on one line")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--seconds", type=float, default=600, help="of random requests, at least")
    arguments.add_argument("--requests", type=int, default=50_000, help="at least, unless it takes three times as long")
    arguments.add_argument("--clients", type=int, default=6)
    arguments.add_argument("--kills", type=int, default=200)
    arguments.add_argument("--half-open", type=int, default=2000)
    arguments.add_argument("--what-ifs", type=int, default=50)
    arguments.add_argument("--door-seconds", type=float, default=40, help="so long answers are timed at the doors")
    arguments.add_argument("--patience", type=float, default=15, help="seconds until a canary must be decided upon")
    arguments.add_argument(
        "--without", nargs="*", default=[], help="leave out requests with any of these words in them"
    )
    arguments.add_argument("--keep", type=Path, help="an empty folder for the state, kept afterwards")
    return arguments.parse_args()


def main() -> int:
    asked = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="penstock-siege-"))
    folder.mkdir(exist_ok=True)
    watch = Stopwatch()
    bench = Bench(asked, folder)
    try:
        for phase in (bench.run_doors, bench.run_requests, bench.run_kills):
            phase()
        found = bench.report(watch.seconds())
    finally:
        bench.done.set()
        bench.siege.stop()
        if not asked.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found, indent=None if asked.json else 1))
    sound = not any(found[name] for name in ZEROS) and (found["worst_answer_ms"] or 0) < MAX_ANSWER_MS
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
