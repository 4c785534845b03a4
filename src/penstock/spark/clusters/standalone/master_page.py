"""What the Master says about its Workers and applications on its JSON page."""

from __future__ import annotations

import http.client
import logging
import re
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from penstock.base.text_checks import is_whole
from penstock.cluster.slot_resources import SLOT, resource_name
from penstock.cluster.topology import Slot

if TYPE_CHECKING:
    from collections.abc import Iterator


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


# Which slots of a cluster executors hold, and whose they are, as the Master's pages say.


_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
_RESOURCE = re.compile(r"([^\s,:]+): \[([^\]]*)\]")
_OWN = re.compile(rf"{SLOT}-\d+-.+")
"""The resource of one slot by itself."""
_OVER = {"EXITED", "FINISHED", "FAILED", "KILLED", "LOST", "DECOMMISSIONED"}


def held_slots(web_url: str, *, except_for: str = "") -> dict[Slot, str]:
    """By slot: who holds it. `except_for` is the application that asks. Empty where the Master does not answer."""
    page = fetch_page(web_url)
    held: dict[Slot, str] = {}
    for application in page.applications if page is not None else ():
        if application.id != except_for:
            text = fetch_text(f"{web_url}/app/?appId={quote(application.id)}")
            held |= dict.fromkeys(slots_on_page(text or ""), described(application))
    return held


def described(application: ListedApplication) -> str:
    return f"'{application.name}', {application.id}"


def slots_on_page(text: str) -> Iterator[Slot]:
    """Of the executors an application has now. One that asked for a slot by its number has that one; any other the
    one whose unit of `slot` it was given."""
    for row in _ROW.findall(text):
        cells = [re.sub("<[^>]*>", "", cell).strip() for cell in _CELL.findall(row)]
        if _OVER & set(cells):
            continue
        resources = {name: addresses for cell in cells for name, addresses in _RESOURCE.findall(cell)}
        own = next((addresses for name, addresses in resources.items() if _OWN.fullmatch(name)), None)
        for address in (own or resources.get(SLOT, "")).split(","):
            node, _, number = address.strip().rpartition("/")
            if node and is_whole(number):
                yield Slot(node, int(number))
