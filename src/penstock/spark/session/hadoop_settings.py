"""What a Hadoop client is told, in its own files."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from penstock.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

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
