"""Where YARN's managers of resources are, as the settings of a Hadoop client say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.digits import is_whole
from penstock.spark.session.hadoop_settings import hadoop_settings

if TYPE_CHECKING:
    from pathlib import Path

PORT = 8032
"""Hadoop's default."""
_PREFIX = "yarn.resourcemanager"


def resource_managers(folder: Path) -> list[tuple[str, int]]:
    """Hosts and ports of `yarn-site.xml`, one for every manager of several; none where they are not said there, or by
    variables that only Hadoop knows."""
    settings = hadoop_settings(folder / "yarn-site.xml")
    several = settings.get(f"{_PREFIX}.ha.enabled") == "true"
    names = [f".{name.strip()}" for name in settings.get(f"{_PREFIX}.ha.rm-ids", "").split(",")] if several else [""]
    places = []
    for name in names:
        address = settings.get(f"{_PREFIX}.address{name}") or settings.get(f"{_PREFIX}.hostname{name}", "")
        host, _, port = address.partition(":")
        if host and "$" not in address and (is_whole(port) or not port):
            places.append((host, int(port or PORT)))
    return places
