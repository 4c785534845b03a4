"""Where YARN's managers of resources are, as the settings of a Hadoop client say."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from penstock.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

PORT = 8032
"""Hadoop's default."""
_PREFIX = "yarn.resourcemanager"


def resource_managers(folder: Path) -> list[tuple[str, int]]:
    """Hosts and ports of `yarn-site.xml`, one for every manager of several; none where they are not said there, or by
    variables that only Hadoop knows."""
    file = folder / "yarn-site.xml"
    if not file.exists():
        return []
    try:
        root = ElementTree.parse(file).getroot()  # noqa: S314 - the user's own settings, which Hadoop reads next
    except (ElementTree.ParseError, OSError) as error:
        raise BadInputError(f"{file}: cannot be read: {error}") from error
    settings = {
        entry.findtext("name", "").strip(): entry.findtext("value", "").strip() for entry in root.iter("property")
    }
    several = settings.get(f"{_PREFIX}.ha.enabled") == "true"
    names = [f".{name.strip()}" for name in settings.get(f"{_PREFIX}.ha.rm-ids", "").split(",")] if several else [""]
    places = []
    for name in names:
        address = settings.get(f"{_PREFIX}.address{name}") or settings.get(f"{_PREFIX}.hostname{name}", "")
        host, _, port = address.partition(":")
        if host and "$" not in address and (port.isdigit() or not port):
            places.append((host, int(port or PORT)))
    return places
