"""Messages that were gone before they were read, as the source of topics leaves word of them for its run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from penstock.errors import BadInputError
from penstock.files import Spec, read_value, write_text
from penstock.report.lag import gone_notes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LOST = "lost.json"

_LOG = logging.getLogger(__name__)


class LostMessages(Spec):
    """Where the run went on: what retention took, and which logs went back (by topic and partition)."""

    lost: dict[str, dict[str, int]] = Field(default_factory=dict)
    """How many messages, by topic and partition, and by who was to read them from which offset on."""
    went_back: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        return {where: sum(pieces.values()) for where, pieces in self.lost.items()}

    @property
    def notes(self) -> list[str]:
        back = [
            f"topic and partition {where}: it went back (made anew, or messages lost), and was read anew"
            for where in self.went_back
        ]
        return [*gone_notes(self.counts), *back]


@dataclass(frozen=True, slots=True)
class LostPiece:
    """What `reader` was to read from offset `first` on, and did not find: so many messages."""

    reader: str
    topic: str
    partition: int
    first: int
    messages: int


def lost_messages(folder: Path) -> LostMessages:
    """Where nobody can read how many there were, they are counted anew."""
    file = folder / LOST
    try:
        return read_value(LostMessages, file) if file.exists() else LostMessages()
    except BadInputError as error:
        _LOG.warning("%s", error)
        return LostMessages()


def note_lost(folder: Path, lost: Iterable[LostPiece] = (), went_back: Iterable[str] = ()) -> None:
    """A batch that is planned again, after a death, begins at the same offset: it is counted once, as it was found
    last."""
    known = lost_messages(folder)
    pieces = {where: dict(by_reader) for where, by_reader in known.lost.items()}
    for piece in lost:
        pieces.setdefault(f"{piece.topic}/{piece.partition}", {})[f"{piece.reader} from {piece.first}"] = piece.messages
    now_known = LostMessages(lost=pieces, went_back=tuple(dict.fromkeys((*known.went_back, *went_back))))
    if now_known != known:
        write_text(folder / LOST, now_known.model_dump_json())
