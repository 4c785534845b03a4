"""Which slots of a cluster executors hold, and whose they are, as the Master's pages say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.cluster.topology import Slot
from penstock.digits import is_whole
from penstock.spark.standalone.daemons import SLOT
from penstock.spark.standalone.master_page import ListedApplication, fetch_page, fetch_text

if TYPE_CHECKING:
    from collections.abc import Iterator

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
