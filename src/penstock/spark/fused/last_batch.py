"""A last batch without input that closes every window: its watermark is the end of time.

Spark closes a window when the watermark passes its end, and only what comes in moves the watermark. When the input has
ended nothing comes in any more. But the batch a query begins with is the one its log of offsets names: an entry behind
the last one, with the same offsets and another watermark, is a batch that takes in nothing and closes all there is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.digits import is_whole
from penstock.errors import RunFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_OF_TIME_MS = 253_402_300_799_000
"""The last second of the year 9999: beyond it Spark's own functions of dates do not go."""
WATERMARK = "batchWatermarkMs"


class CheckpointLog:
    """Entries of a checkpoint (`offsets`, `commits`), by number; on any file system of Hadoop's."""

    def __init__(self, session: SparkSession, checkpoint: str, name: str) -> None:
        self._java: Any = session.sparkContext._jvm
        self._path = f"{checkpoint.rstrip('/')}/{name}"
        self._folder = self._at(self._path)
        self._files = self._folder.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())

    def numbers(self) -> list[int]:
        """The newest first."""
        if not self._files.exists(self._folder):
            return []
        names = [status.getPath().getName() for status in self._files.listStatus(self._folder)]
        return sorted((int(name) for name in names if is_whole(name)), reverse=True)

    def last(self) -> int:
        """-1: there is none."""
        return next(iter(self.numbers()), -1)

    def read(self, number: int) -> str:
        stream = self._files.open(self._at(f"{self._path}/{number}"))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, number: int, text: str) -> None:
        """Whole or not at all."""
        beside = self._at(f"{self._path}/.{number}.penstock")
        stream = self._files.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not self._files.rename(beside, self._at(f"{self._path}/{number}")):
            raise RunFailedError(f"{self._path}: batch {number} could not be written down")

    def _at(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(path)


def _about(entry: str) -> dict[str, Any] | None:
    """What an entry of the log of offsets says of its batch: a version, a line of JSON about it, then the offset of
    each source. None: it does not look like that."""
    try:
        about = json.loads(entry.split("\n")[1])
    except (IndexError, ValueError):
        return None
    return about if isinstance(about, dict) and WATERMARK in about else None


def at_the_end_of_time(entry: str) -> str | None:
    """An entry of the log of offsets with the watermark of the end of time; None: it is of no kind that is known."""
    about = _about(entry)
    if about is None:
        return None
    lines = entry.split("\n")
    lines[1] = json.dumps({**about, WATERMARK: END_OF_TIME_MS}, separators=(",", ":"))
    return "\n".join(lines)


def is_at_the_end_of_time(entry: str) -> bool:
    return (_about(entry) or {}).get(WATERMARK) == END_OF_TIME_MS


def closing_batch(session: SparkSession, checkpoint: str) -> int | None:
    """The number of the batch that closes everything, where a process has come as far as that and then died. Behind it
    every row would be late: Spark keeps the watermark it had. None: the input of the query has not ended."""
    offsets = CheckpointLog(session, checkpoint, "offsets")
    closing = None
    for number in offsets.numbers():
        if not is_at_the_end_of_time(offsets.read(number)):
            break
        closing = number
    return closing


def append_last_batch(session: SparkSession, checkpoint: str) -> int | None:
    """The number of the batch that closes everything, for a query that is started from `checkpoint` next. None: it
    cannot be had, because some batch is not committed, or Spark's log looks other than known."""
    offsets, commits = (CheckpointLog(session, checkpoint, name) for name in ("offsets", "commits"))
    last = offsets.last()
    if last < 0 or commits.last() != last:
        return None
    entry = at_the_end_of_time(offsets.read(last))
    if entry is None:
        return None
    offsets.write(last + 1, entry)
    return last + 1
