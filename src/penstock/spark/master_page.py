"""What the Master says about its Workers and applications on its JSON page."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.daemons import resource_name

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIVE = "ALIVE"
DEAD = "DEAD"

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The Master is asked directly, whatever proxy the environment names."""


@dataclass(frozen=True, slots=True)
class Application:
    id: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A Worker as the Master sees it."""

    state: str
    used: int


@dataclass(frozen=True, slots=True)
class MasterPage:
    url: str
    status: str
    workers: tuple[Mapping[str, Any], ...]
    applications: tuple[Application, ...]

    def worker(self, node: str) -> Seen | None:
        """The Worker of a node: the live one if there is one, else the last that was there; None if none ever was."""
        name = resource_name(node)
        own = [worker for worker in self.workers if name in worker["resources"]]
        if not own:
            return None
        best = max(own, key=lambda worker: (worker["state"] == ALIVE, worker["lastheartbeat"]))
        used = len(best["resourcesused"].get(name, {}).get("addresses", ()))
        return Seen(best["state"], used if best["state"] == ALIVE else 0)


def parse_page(text: str) -> MasterPage:
    data = json.loads(text)
    return MasterPage(
        data["url"],
        data["status"],
        tuple(data["workers"]),
        tuple(Application(one["id"], one["name"], one["state"]) for one in data["activeapps"]),
    )


def fetch_page(web_url: str, timeout: float = 5.0) -> MasterPage | None:
    """The page, or None where no Master answers."""
    try:
        with _DIRECT.open(f"{web_url}/json/", timeout=timeout) as answer:
            return parse_page(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return None
