"""Messages that were gone before they were read, as the source of topics leaves word of them for its run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pydantic import Field

from penstock.errors import BadInputError
from penstock.files import Spec, read_value, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LOST = "lost.json"

_LOG = logging.getLogger(__name__)


class LostMessages(Spec):
    """By topic and partition, where the run went on: how many retention took, and which logs went back."""

    lost: dict[str, int] = Field(default_factory=dict)
    went_back: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        counted = [f"{where}: {count:,} messages were gone unread" for where, count in self.lost.items()]
        back = [f"{where}: it went back (made anew, or messages lost), and was read anew" for where in self.went_back]
        return [f"topic and partition {note}" for note in (*counted, *back)]


def lost_messages(folder: Path) -> LostMessages:
    """Where nobody can read how many there were, they are counted anew."""
    file = folder / LOST
    try:
        return read_value(LostMessages, file) if file.exists() else LostMessages()
    except BadInputError as error:
        _LOG.warning("%s", error)
        return LostMessages()


def note_lost(folder: Path, lost: Mapping[str, int], went_back: Iterable[str] = ()) -> None:
    """So many more."""
    known = lost_messages(folder)
    counts = {where: known.lost.get(where, 0) + count for where, count in lost.items()}
    now_known = LostMessages(
        lost={**known.lost, **counts}, went_back=tuple(dict.fromkeys((*known.went_back, *went_back)))
    )
    if now_known != known:
        write_text(folder / LOST, now_known.model_dump_json())
