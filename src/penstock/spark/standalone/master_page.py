"""What the Master says about its Workers and applications on its JSON page."""

from __future__ import annotations

import http.client
import logging
import urllib.request
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from penstock.spark.standalone.daemons import SLOT, resource_name

ALIVE = "ALIVE"
DEAD = "DEAD"

LARGEST_PAGE = 32 * 2**20

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The Master is asked directly, whatever proxy the environment names."""

_LOG = logging.getLogger(__name__)


class _Told(BaseModel):
    """A part of the page; it says more than we ask for, and another Spark may say still more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ListedApplication(_Told):
    id: str
    name: str
    state: str


class Addresses(_Told):
    addresses: tuple[str, ...] = ()


class WorkerEntry(_Told):
    """One of the Workers the Master has seen, those that died among them."""

    state: str
    last_heartbeat: int = Field(alias="lastheartbeat")
    offered: dict[str, Addresses] = Field(alias="resources")
    used: dict[str, Addresses] = Field(alias="resourcesused")


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The Worker of a node as the Master sees it, and how many of its slots executors hold."""

    state: str
    used: int


class MasterPage(_Told):
    url: str
    status: str
    workers: tuple[WorkerEntry, ...]
    applications: tuple[ListedApplication, ...] = Field(alias="activeapps")

    def worker(self, node: str) -> WorkerStatus | None:
        """The Worker of a node: the live one if there is one, else the last that was there; None if none ever was."""
        name = resource_name(node)
        own = [worker for worker in self.workers if name in worker.offered]
        if not own:
            return None
        best = max(own, key=lambda worker: (worker.state == ALIVE, worker.last_heartbeat))
        used = len(best.used.get(SLOT, Addresses()).addresses)
        return WorkerStatus(best.state, used if best.state == ALIVE else 0)


def parse_page(text: str) -> MasterPage:
    return MasterPage.model_validate_json(text)


def fetch_page(web_url: str, timeout: float = 5.0) -> MasterPage | None:
    """The page, or None where no Master answers: nobody, or another program that was given its port since."""
    text = fetch_text(f"{web_url}/json/", timeout)
    try:
        return None if text is None else parse_page(text)
    except ValueError as error:  # not this page
        _LOG.debug("no Master answers at %s: %s", web_url, error)
        return None


def fetch_text(url: str, timeout: float = 5.0) -> str | None:
    """What stands there; None where nobody answers."""
    try:
        with _DIRECT.open(url, timeout=timeout) as answer:
            return str(answer.read(LARGEST_PAGE).decode())
    except (OSError, http.client.HTTPException, ValueError) as error:  # nobody, not HTTP, or not text
        _LOG.debug("nobody answers at %s: %s", url, error)
        return None
