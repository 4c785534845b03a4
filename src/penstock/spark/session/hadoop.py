"""What a Hadoop client is told, in its own files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from penstock.base.errors import BadInputError
from penstock.base.text import is_whole
from penstock.spark.internals.java import default_file_system

if TYPE_CHECKING:
    from collections.abc import Mapping


LOCAL = "file:"
"""How Hadoop is told that a path lies on this machine."""


def hadoop_settings(file: Path) -> dict[str, str]:
    """By name; none where there is no such file."""
    if not file.exists():
        return {}
    try:
        root = ElementTree.parse(file).getroot()  # noqa: S314 - the user's own settings, which Hadoop reads next
    except (ElementTree.ParseError, OSError) as error:
        raise BadInputError(f"{file}: cannot be read: {error}") from error
    return {entry.findtext("name", "").strip(): entry.findtext("value", "").strip() for entry in root.iter("property")}


# The Hadoop file system of a path without a scheme.


FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
_KEYS = ("fs.defaultFS", "fs.default.name")


def is_local_by_default(settings: Mapping[str, str], session: Any = None) -> bool:
    """Whether it lies on this machine's disks: as a session says that is there already; else as one would find it, in
    its own settings or in `core-site.xml` of the folders it looks in."""
    if session is not None:
        return default_file_system(session).startswith(LOCAL)
    named = [settings.get(f"spark.hadoop.{key}") for key in _KEYS]
    for variable in FOLDERS:
        if folder := os.environ.get(variable):
            in_file = hadoop_settings(Path(folder) / "core-site.xml")
            named += [in_file.get(key) for key in _KEYS]
    return next(filter(None, named), LOCAL).startswith(LOCAL)


# Addresses of YARN's resource managers, from the settings of a Hadoop client.


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
