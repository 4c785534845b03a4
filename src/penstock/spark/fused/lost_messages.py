"""Messages that retention took before they were read, as the source of topics leaves word of them for its run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.files import Spec, read_value, write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOST = "lost.json"

_LOG = logging.getLogger(__name__)


class _LostMessages(Spec):
    lost: dict[str, int]


def lost_messages(folder: Path) -> dict[str, int]:
    """By topic and partition, where the run went on. Where nobody can read how many there were, they are counted
    anew."""
    file = folder / LOST
    try:
        return read_value(_LostMessages, file).lost if file.exists() else {}
    except BadInputError as error:
        _LOG.warning("%s", error)
        return {}


def note_lost(folder: Path, lost: Mapping[str, int]) -> None:
    """So many more."""
    known = lost_messages(folder)
    counted = _LostMessages(lost={**known, **{where: known.get(where, 0) + count for where, count in lost.items()}})
    write_text(folder / LOST, counted.model_dump_json())
