"""What the Master says about its Workers and applications on its JSON page."""

from __future__ import annotations

import html
import http.client
import logging
import re
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from penstock.base.text import is_whole
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

    id: str = ""
    host: str | None = None
    port: int = 0
    state: str
    cores: int | None = None
    cores_used: int | None = Field(default=None, alias="coresused")
    memory_mb: float | None = Field(default=None, alias="memory")
    memory_used_mb: float | None = Field(default=None, alias="memoryused")
    last_heartbeat: int = Field(alias="lastheartbeat")
    offered: dict[str, Addresses] = Field(alias="resources", default_factory=dict)
    used: dict[str, Addresses] = Field(alias="resourcesused", default_factory=dict)

    @property
    def node(self) -> str | None:
        """Name of the node, which its slots carry; None for a Worker that offers no slots."""
        slots = self.offered.get(SLOT, Addresses()).addresses
        return slots[0].rpartition("/")[0] or None if slots else None


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
    except (OSError, http.client.HTTPException, ValueError) as error:  # no answer, not HTTP, or not text
        _LOG.debug("nobody answers at %s: %s", url, error)
        return None


# Executors of an application, as listed on its page.


_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
_RESOURCE = re.compile(r"([^\s,:]+): \[([^\]]*)\]")
_OWN = re.compile(rf"{SLOT}-\d+-.+")
"""The resource of one slot by itself."""
_OVER = {"EXITED", "FINISHED", "FAILED", "KILLED", "LOST", "DECOMMISSIONED"}
_EXECUTOR_CELLS = 7
"""Id, Worker, cores, memory, resource profile, resources, state; then links to logs."""


@dataclass(frozen=True, slots=True)
class ListedExecutor:
    id: str
    worker: str
    """Id of its Worker."""
    cores: float | None
    memory_mb: float | None
    slot: Slot | None
    """Slot it was given, if its Worker offers slots and it asked for one."""
    named: bool = False
    """Whether it asked for that slot by its number; otherwise it has one unit of `slot`, and another executor may ask
    for that number."""


def listed_executors(text: str) -> Iterator[ListedExecutor]:
    """Yield the executors an application has now. One that asked for a slot by its number has that one; any other the
    one whose unit of `slot` it was given."""
    for row in _ROW.findall(text):
        cells = [html.unescape(re.sub("<[^>]*>", "", cell)).strip() for cell in _CELL.findall(row)]
        if len(cells) < _EXECUTOR_CELLS or _OVER & set(cells):
            continue
        name, worker, cores, memory, _, resources, *_ = cells
        if not is_whole(name):
            continue
        offered = dict(_RESOURCE.findall(resources))
        own = next((addresses for each, addresses in offered.items() if _OWN.fullmatch(each)), None)
        node, _, number = (own or offered.get(SLOT, "")).partition(",")[0].strip().rpartition("/")
        slot = Slot(node, int(number)) if node and is_whole(number) else None
        size = [float(each) if is_whole(each) else None for each in (cores, memory)]
        yield ListedExecutor(name, worker, size[0], size[1], slot, own is not None)
