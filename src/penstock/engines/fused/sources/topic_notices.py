"""Messages that were gone before they were read, as the source of topics leaves word of them for its run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from pydantic import Field

from penstock.base.errors import BadInputError
from penstock.base.files import Spec, read_value, write_text
from penstock.report.figures import gone_notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


LOST = "lost.json"
LOST_IN_TASKS = "lost"
"""A folder: tasks write beside each other, and each has a file of its own."""

FROM = " from "

_LOG = logging.getLogger(__name__)


class LostMessages(Spec):
    """Losses that the run continued after: messages removed by retention, and logs that went back (by topic and
    partition)."""

    lost: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Number of messages, by topic and partition, and by reader and first offset."""
    went_back: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        return {where: _messages(pieces) for where, pieces in self.lost.items()}

    @property
    def notes(self) -> list[str]:
        back = [
            f"topic and partition {where}: it went back (made anew, or messages lost), and was read anew"
            for where in self.went_back
        ]
        return [*gone_notes(self.counts), *back]


@dataclass(frozen=True, slots=True)
class LostPiece:
    """Messages that `reader` was to read from offset `first` on, and that were gone."""

    reader: str
    topic: str
    partition: int
    first: int
    messages: int

    @property
    def where(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def key(self) -> str:
        return f"{self.reader}{FROM}{self.first}"


def _messages(pieces: Mapping[str, int]) -> int:
    """Return the messages of all readers. A message missed twice by one of them counts once: a batch is planned again
    from its beginning, though a task has noted a part of it."""
    ranges = sorted((key.rpartition(FROM)[0], int(key.rpartition(FROM)[2]), count) for key, count in pieces.items())
    total, reached = 0, dict[str, int]()
    for reader, first, count in ranges:
        begin, end = max(first, reached.get(reader, first)), first + count
        total += max(0, end - begin)
        reached[reader] = max(begin, end)
    return total


def lost_messages(folder: Path) -> LostMessages:
    """Return the losses noted by the planning of batches and by tasks."""
    known = _noted(folder / LOST)
    pieces = {where: dict(by_reader) for where, by_reader in known.lost.items()}
    for file in sorted((folder / LOST_IN_TASKS).glob("[!.]*.json")):
        for where, by_reader in _noted(file).lost.items():
            pieces.setdefault(where, {}).update(by_reader)
    return LostMessages(lost=pieces, went_back=known.went_back)


def _noted(file: Path) -> LostMessages:
    """Return the noted losses; counting begins anew if the file cannot be read."""
    try:
        return read_value(LostMessages, file) if file.exists() else LostMessages()
    except BadInputError as error:
        _LOG.warning("%s", error)
        return LostMessages()


def note_lost_in_task(folder: Path, piece: LostPiece) -> None:
    """A task that is tried again begins at the same offset, and so its file has the same name."""
    (folder / LOST_IN_TASKS).mkdir(exist_ok=True, mode=0o700)
    reader = sha256(piece.reader.encode()).hexdigest()[:8]
    file = folder / LOST_IN_TASKS / f"{piece.topic}-{piece.partition}-{piece.first}-{reader}.json"
    write_text(file, LostMessages(lost={piece.where: {piece.key: piece.messages}}).model_dump_json())


def note_lost(folder: Path, lost: Iterable[LostPiece] = (), went_back: Iterable[str] = ()) -> None:
    """A batch that is planned again, after a death, begins at the same offset: it is counted once, as it was found
    last."""
    known = _noted(folder / LOST)
    pieces = {where: dict(by_reader) for where, by_reader in known.lost.items()}
    for piece in lost:
        pieces.setdefault(piece.where, {})[piece.key] = piece.messages
    now_known = LostMessages(lost=pieces, went_back=tuple(dict.fromkeys((*known.went_back, *went_back))))
    if now_known != known:
        write_text(folder / LOST, now_known.model_dump_json())


# A sign in the run's folder that a source waits for a log that is away.
#
# Spark sees a source that has nothing new. Readers of a run's figures must distinguish that from a stream that stopped.


_AWAY_LOG = logging.getLogger(__name__)
_BEGINS = "away-"


class AwaySign:
    """The sign of one source that its log is away; without a folder there is none."""

    def __init__(self, folder: Path | None, source: str) -> None:
        self._file = None if folder is None else folder / f"{_BEGINS}{sha256(source.encode()).hexdigest()[:8]}"
        self._shows: bool | None = None
        """None: one that a process before left may be there."""

    def show(self) -> None:
        self._turn(shows=True)

    def take_away(self) -> None:
        self._turn(shows=False)

    def _turn(self, *, shows: bool) -> None:
        if self._file is None or self._shows is shows:
            return
        try:
            if shows:
                self._file.touch()
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            _AWAY_LOG.warning("%s: %s", self._file, error.strerror or error)  # a full disk must not end what waits
            return
        self._shows = shows


def is_source_away(folder: Path) -> bool:
    return any(folder.glob(f"{_BEGINS}*"))
