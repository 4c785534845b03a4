"""A client of `bench/siege.py` that keeps books: its changes that were answered 2xx must be in force after a kill."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from siege_controller import Answer, Siege

POLICIES = ("fair-priority", "fair-max-min", "dynamic-priority", "max-min")
ENDED = ("ending", "killed")


@dataclass
class Entry:
    """A pipeline as its owner believes it to be: each field with all values it may have."""

    alive: list[bool] = field(default_factory=lambda: [False])
    values: dict[str, list[Any]] = field(default_factory=dict)
    unsure: bool = False
    """A request had no answer: leave this one alone until it was read again."""

    def settle(self, row: dict[str, Any] | None) -> None:
        """Believe what was read."""
        self.unsure = False
        self.alive = [row is not None and row["state"] not in ENDED]
        self.values = {name: [one] for name, one in seen_values(row).items()} if row else {}


def seen_values(row: dict[str, Any]) -> dict[str, Any]:
    fields = {name: row[name] for name in ("priority", "minimum", "maximum", "paused")}
    return {**fields, "rate": row["target"]["rate"], "triggers": sorted(one["id"] for one in row["triggers"])}


class Bookkeeper:
    """Owns pipelines that nobody else changes; the first one owns the policy and some nodes as well."""

    def __init__(self, seed: str, number: int, protected: set[str], complain: Callable[[str], None]) -> None:
        self.draw = random.Random(f"{seed} books {number}")  # noqa: S311
        self.first, self.protected, self.complain = number == 0, protected, complain
        self.entries = {f"kept-{number}-{one}": Entry() for one in range(5)}
        self.policy: list[str] = []
        """The policy in force, or nothing: unknown until a change was answered."""
        self.nodes: dict[str, bool] = {}
        self.lock = threading.Lock()

    def act(self, siege: Siege) -> None:
        """Make one change, and write down what its answer promises."""
        with self.lock:
            if self.first and self.draw.random() < 0.15:
                self.change_cluster(siege)
                return
            name = self.draw.choice(sorted(self.entries))
            entry = self.entries[name]
            if entry.unsure:
                return
            if not entry.alive[-1]:
                self.submit(siege, name, entry)
            elif self.draw.random() < 0.15:
                answer = siege.ask("DELETE", f"/v1/pipelines/{name}")
                entry.alive = self.after(entry, answer, entry.alive, False)
                if answer and self.draw.random() < 0.5:
                    self.submit(siege, name, entry)
            elif self.draw.random() < 0.2:
                answer = siege.ask("POST", f"/v1/pipelines/{name}/triggers", {"kind": "arrival-rate", "above": 1e9})
                if answer is None or answer.status < 300:
                    entry.unsure = answer is None
                    entry.values.pop("triggers", None)
                    if answer:
                        row = siege.ask("GET", f"/v1/pipelines/{name}")
                        if row and row.status == 200:
                            entry.values["triggers"] = [seen_values(row.document)["triggers"]]
            else:
                self.amend(siege, name, entry)

    def after(self, entry: Entry, answer: Answer | None, values: list[Any], new: Any) -> list[Any]:
        """The values that may be in force after this answer."""
        if answer is None:
            entry.unsure = True
            return [*values, new]
        return [new] if answer.status < 300 else values

    def submit(self, siege: Siege, name: str, entry: Entry) -> None:
        priority, minimum = self.draw.randrange(1, 5), self.draw.randrange(1, 3)
        body = {"name": name, "pipeline": "linear", "desired": minimum + 1, "minimum": minimum, "priority": priority}
        answer = siege.ask("POST", "/v1/pipelines", {**body, "load": "5"})
        entry.alive = self.after(entry, answer, entry.alive, True)
        if answer and answer.status < 300:
            fresh: dict[str, Any] = {"priority": priority, "minimum": minimum, "maximum": None, "paused": False}
            entry.values = {key: [one] for key, one in {**fresh, "rate": None, "triggers": []}.items()}
        elif answer is None:
            entry.values = {}

    def amend(self, siege: Siege, name: str, entry: Entry) -> None:
        key, value = self.draw.choice(
            [
                ("priority", self.draw.randrange(1, 9)),
                ("minimum", self.draw.randrange(1, 4)),
                ("maximum", self.draw.randrange(4, 9)),
                ("paused", self.draw.random() < 0.5),
                ("rate", float(self.draw.randrange(1, 40))),
            ]
        )
        body = {"target": {"rate": value}} if key == "rate" else {key: value}
        answer = siege.ask("PATCH", f"/v1/pipelines/{name}", body)
        if key in entry.values:
            entry.values[key] = self.after(entry, answer, entry.values[key], value)

    def change_cluster(self, siege: Siege) -> None:
        if self.draw.random() < 0.5:
            sharing = self.draw.choice(POLICIES)
            answer = siege.ask("PUT", "/v1/policy", {"sharing": sharing})
            if answer is None:
                self.policy = []
            elif answer.status < 300:
                self.policy = [sharing]
        elif len(self.nodes) > 3 or (self.nodes and self.draw.random() < 0.3):
            node = self.draw.choice(sorted(self.nodes))
            self.nodes.pop(node)
            siege.ask("DELETE", f"/v1/nodes/{node}")
        else:
            answer = siege.ask("POST", "/v1/nodes", {})
            if answer and answer.status == 202:
                self.nodes |= dict.fromkeys(answer.document["nodes"], True)
                self.protected |= set(answer.document["nodes"])

    def check(self, siege: Siege) -> None:
        """Compare the books with the controller after a restart; complain of every change that is not in force."""
        with self.lock:
            for name, entry in self.entries.items():
                answer = siege.ask("GET", f"/v1/pipelines/{name}")
                if answer is None or answer.status not in (200, 404):
                    self.complain(f"GET /v1/pipelines/{name}: {answer}")
                    continue
                row: dict[str, Any] | None = answer.document if answer.status == 200 else None
                alive = row is not None and row["state"] not in ENDED
                if alive not in entry.alive:
                    self.complain(f"{name}: alive {entry.alive} promised, found {row and row['state']}")
                elif row and alive:
                    for key, found in seen_values(row).items():
                        if key in entry.values and found not in entry.values[key]:
                            self.complain(f"{name}: {key} {entry.values[key]} promised, found {found}")
                entry.settle(row)
            if self.first:
                self.check_cluster(siege)

    def check_cluster(self, siege: Siege) -> None:
        answer, nodes = siege.ask("GET", "/v1/policy"), siege.rows("/v1/nodes")
        if answer and answer.status == 200:
            found = answer.document["sharing"]
            if self.policy and found not in self.policy:
                self.complain(f"policy {self.policy} promised, found {found}")
            self.policy = [found]
        if nodes is not None:
            states = {row["name"]: row["state"] for row in nodes}
            for node in [node for node in self.nodes if states.get(node) not in ("joining", "alive")]:
                self.complain(f"node {node} promised, found {states.get(node)}")
                self.nodes.pop(node)
