"""A last batch without input that closes every window: its watermark is the end of time.

Spark closes a window when the watermark passes its end, and only new rows move the watermark. After the end of the
input there are none. But a query begins with the batch that its log of offsets names: one more entry, with the same
offsets and another watermark, is a batch that takes in nothing and closes all windows.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from penstock.base.errors import RunFailedError
from penstock.base.text import is_whole
from penstock.spark.internals.declarations import touches
from penstock.spark.internals.error_messages import in_one_line
from penstock.spark.internals.hadoop_files import HadoopFiles
from penstock.spark.internals.settings import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


END_OF_TIME_MS = 253_402_300_799_000
"""The last second of the year 9999: beyond it Spark's own functions of dates do not go."""
WATERMARK = "batchWatermarkMs"


@touches(
    "the files `offsets/N` and `commits/N` of a checkpoint",
    "No API reads how far a checkpoint is, or what its last batch was run with.",
)
class CheckpointLog:
    """Entries of a checkpoint (`offsets`, `commits`), by number; on any file system of Hadoop's."""

    def __init__(self, session: SparkSession, checkpoint: str, name: str) -> None:
        self._path = f"{checkpoint.rstrip('/')}/{name}"
        self._files = HadoopFiles(session)

    def numbers(self) -> list[int]:
        """The newest first."""
        return sorted((int(name) for name in self._files.names(self._path) if is_whole(name)), reverse=True)

    def last(self) -> int:
        """-1: there is none."""
        return next(iter(self.numbers()), -1)

    def read(self, number: int) -> str:
        text = self._files.read(f"{self._path}/{number}")
        if text is None:
            raise RunFailedError(f"{self._path}: batch {number} is not there any more")
        return text

    def write(self, number: int, text: str) -> None:
        """Whole or not at all."""
        self._files.write(f"{self._path}/{number}", text)


def _about(entry: str) -> dict[str, Any] | None:
    """Return the description of a batch in an entry of the log of offsets: a version, a line of JSON about it, then the
    offset of each source. None if it does not have this form."""
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
    """Return the number of the batch that closes all windows, if a process has reached it and then died. After it every
    row would be late: Spark keeps the watermark. None if the input of the query has not ended."""
    offsets = CheckpointLog(session, checkpoint, "offsets")
    closing = None
    for number in offsets.numbers():
        if not is_at_the_end_of_time(offsets.read(number)):
            break
        closing = number
    return closing


@touches(
    "an entry of the offset log after the last, with `batchWatermarkMs` at the end of time",
    "Only input moves a watermark: windows of an input that has ended would never close.",
)
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


# The name under which sinks know the batches of a checkpoint.
#
# Batches are numbered by Spark's checkpoint, from 0, and a sink leaves out a number that it has. So the name must be
# as old as the numbers. The run's own name is not: a run whose checkpoint was removed begins with batch 0 again, and
# a checkpoint may be gone on with from another folder, by a run of another name. The name is kept in the checkpoint,
# and is gone with it.


OWNER = "penstock-owner"


def first_owner(run: str, last_batch: int, token: str) -> str:
    """Return the first owner of a checkpoint without a name: a new one. A checkpoint that has batches is of an earlier
    version, in which sinks recognised them by the name of the run."""
    return run if last_batch >= 0 else f"{run}-{token}"


def owner_of(session: SparkSession, checkpoint: str, run: str) -> str:
    """Return the name kept in `checkpoint`; if there is none, give it one that contains the name of `run`."""
    files, place = HadoopFiles(session), f"{checkpoint.rstrip('/')}/{OWNER}"
    with in_one_line(f"checkpoint '{checkpoint}'"):
        owner = files.read(place)
        if owner is None:
            last_batch = CheckpointLog(session, checkpoint, "offsets").last()
            owner = first_owner(run, last_batch, secrets.token_hex(4))
            files.write(place, owner)
    return owner


# Shuffle partitions of a query: those its checkpoint began with, else those of its session.


def partitions_of(session: SparkSession, checkpoint: str) -> int:
    with in_one_line(f"checkpoint '{checkpoint}'"):
        offsets = CheckpointLog(session, checkpoint, "offsets")
        last = offsets.last()
        kept = None if last < 0 else partitions_in(offsets.read(last))
        return int(session.conf.get(PARTITIONS) or 0) if kept is None else kept


@touches(
    "`conf` in the second line of an entry of the offset log",
    "A checkpoint keeps the number of shuffle partitions it began with, and no API returns it.",
)
def partitions_in(entry: str) -> int | None:
    """Return the number of partitions in an entry of the log of offsets: after its version is a line of JSON with the
    settings of the batch. None if it has none."""
    try:
        return int(json.loads(entry.split("\n")[1])["conf"][PARTITIONS])
    except (IndexError, KeyError, TypeError, ValueError):
        return None
