"""Messages that retention took before they were read, as the source of topics leaves word of them for its run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.files import Spec, read_value, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LOST = "lost.json"

_LOG = logging.getLogger(__name__)


class _LostMessages(Spec):
    lost: dict[str, dict[str, int]]
    """By topic and partition, and by who was to read them from which offset on."""


@dataclass(frozen=True, slots=True)
class LostPiece:
    """What `reader` was to read from offset `first` on, and did not find: so many messages."""

    reader: str
    topic: str
    partition: int
    first: int
    messages: int


def lost_messages(folder: Path) -> dict[str, int]:
    """By topic and partition, where the run went on. Where nobody can read how many there were, they are counted
    anew."""
    return {where: sum(pieces.values()) for where, pieces in _known(folder).items()}


def _known(folder: Path) -> dict[str, dict[str, int]]:
    file = folder / LOST
    try:
        return read_value(_LostMessages, file).lost if file.exists() else {}
    except BadInputError as error:
        _LOG.warning("%s", error)
        return {}


def note_lost(folder: Path, lost: Iterable[LostPiece]) -> None:
    """A batch that is planned again, after a death, begins at the same offset: it is counted once, as it was found
    last."""
    known = _known(folder)
    for piece in lost:
        known.setdefault(f"{piece.topic}/{piece.partition}", {})[f"{piece.reader} from {piece.first}"] = piece.messages
    write_text(folder / LOST, _LostMessages(lost=known).model_dump_json())
