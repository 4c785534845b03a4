"""The messages of some partitions, batch by batch, from where a commit left off: what a source bundle reads.

The partitions of every topic are dealt round robin to those who share a source; whoever gets a partition goes on from
its offset, whoever read it before. A partition that is new goes to somebody by the same rule, and moves no other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import Stopwatch
from penstock.connectors.log.contract import DamagedLogError, GoneError, LogError, WentBackError
from penstock.connectors.log.offsets import resolved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.log.address import LogAddress
    from penstock.connectors.log.contract import Span, TopicLog

LOOK_SECONDS, IDLE_LOOK_SECONDS = 0.05, 0.5
"""Between two looks at what there is: where messages come, and where none came for long."""
PATIENCE_SECONDS = 300.0
"""A log may be away for so long before whoever reads it gives up."""

MESSAGE_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""What a source that is a topic sends."""

_LOG = logging.getLogger(__name__)


def look_interval(quiet_seconds: float) -> float:
    """A tenth of how long nothing came, within bounds: whoever asks a broker all the time for nothing costs it
    something, and a message waits no longer for being looked for than a tenth of the silence before it."""
    return min(max(quiet_seconds / 10, LOOK_SECONDS), IDLE_LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class TopicShare:
    """What one of `sharers` reads of some topics."""

    source: str
    address: LogAddress
    topics: tuple[str, ...]
    starting: str = "earliest"
    goes_on: bool = False
    """Where messages are gone: leave them out, and say how many."""
    sharer: int = 0
    sharers: int = 1

    def key(self, topic: str, partition: int) -> str:
        """What an offset goes by in a commit; no source's name has a slash."""
        return f"{self.source}/{topic}/{partition}"

    def reads(self, topic: str, partition: int) -> bool:
        """Partition p of topic i is read by sharer (i + p) mod sharers: how many partitions there are has no say in it.
        Whoever got a partition in the midst of a generation would know only where that generation began."""
        return (self.topics.index(topic) + partition) % self.sharers == self.sharer


@dataclass(frozen=True, slots=True)
class Messages:
    """Of one partition; `end` is where it goes on behind them, and `gone` were lost before them. `went_back`: the
    partition ended before what was read of it, and these are the first it has."""

    key: str
    end: int
    rows: pa.RecordBatch
    gone: int = 0
    went_back: bool = False

    @property
    def sent_seconds(self) -> pa.Array:
        """When each was sent, in seconds since the epoch."""
        return pc.divide(self.rows["timestamp"].cast(pa.int64()).cast(pa.float64()), 1e6)


class TopicFeed:
    """`offsets` are those of the commit, by `TopicShare.key`. Where it has none of this source, every partition that is
    there begins where the source says; one that came later begins with its first message."""

    def __init__(self, share: TopicShare, offsets: Mapping[str, int]) -> None:
        self._share = share
        self._offsets = dict(offsets)
        self._begins: dict[str, int] | None = None
        if any(key.startswith(f"{share.source}/") for key in offsets):
            self._begins = {}
        self._opened: TopicLog | None = None
        self._spans: dict[tuple[str, int], Span] = {}
        self._looked: Stopwatch | None = None
        self._quiet = Stopwatch()
        self._away: Stopwatch | None = None
        self._turn = 0

    @property
    def offsets(self) -> dict[str, int]:
        """Where every partition of this share goes on; nothing is said of those that others read."""
        return {self._share.key(*where): self._at(where, span) for where, span in self._spans.items()}

    @property
    def lag(self) -> dict[str, int]:
        return {
            self._share.key(*where): max(0, span.end - self._at(where, span)) for where, span in self._spans.items()
        }

    def next(self, most: int) -> Messages | None:
        """The next messages of a partition that has some, in turn; None: there are none now, or the log is away."""
        try:
            messages = self._next(most)
        except DamagedLogError:
            raise
        except LogError:
            self._away = self._away or Stopwatch()
            if self._away.seconds() > PATIENCE_SECONDS:
                raise
            return None
        self._away = None
        return messages

    def took(self, messages: Messages) -> None:
        self._offsets[messages.key] = messages.end

    def _next(self, most: int) -> Messages | None:
        self._look()
        # one that ends before what was read of it has something to tell, too
        waiting = [where for where, span in self._spans.items() if self._at(where, span) != span.end]
        if not waiting:
            return None
        self._turn += 1
        topic, partition = waiting[self._turn % len(waiting)]
        span = self._spans[topic, partition]
        first, gone = self._at((topic, partition), span), 0
        went_back = first > span.end
        if went_back:
            missed = "it went back, and is read from its first message"
            self._go_on(WentBackError(topic, partition, first, span), missed)
            first = span.first
        elif first < span.first:
            gone = span.first - first
            self._go_on(GoneError(topic, partition, first, span.first), f"{gone:,} messages were gone unread")
            first = span.first
        end = min(span.end, first + most)
        batches = list(self._log.read(topic, partition, first, end))
        rows = pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
        return Messages(self._share.key(topic, partition), end, _rows(rows, topic, partition), gone, went_back)

    def _go_on(self, error: GoneError, missed: str) -> None:
        """Where that was chosen; else it raises."""
        if not self._share.goes_on:
            raise error
        _LOG.warning("topic '%s', partition %d: %s", error.topic, error.partition, missed)

    def _at(self, where: tuple[str, int], span: Span) -> int:
        key = self._share.key(*where)
        return self._offsets.get(key, (self._begins or {}).get(key, span.first))

    def _look(self) -> None:
        """At what there is by now, now and then."""
        if self._looked is not None and self._looked.seconds() < look_interval(self._quiet.seconds()):
            return
        share = self._share
        spans = {topic: dict(self._log.spans(topic)) for topic in share.topics}
        everywhere = [(topic, number) for topic in share.topics for number in sorted(spans[topic])]
        mine = [where for where in everywhere if share.reads(*where)]
        if self._begins is None:
            begins = resolved(share.starting, spans, f"source '{share.source}'")
            self._begins = {share.key(*where): begins[where[0]][str(where[1])] for where in mine}
        self._check_all_there(spans)
        before, self._spans = self._spans, {where: spans[where[0]][where[1]] for where in mine}
        if self._spans != before:
            self._quiet = Stopwatch()
        self._looked = Stopwatch()

    def _check_all_there(self, spans: Mapping[str, Mapping[int, Span]]) -> None:
        """A topic that was made anew may have fewer partitions than were read of it."""
        for topic, parts in spans.items():
            for number in self._numbers_read(topic) - parts.keys():
                at = self._offsets.pop(self._share.key(topic, number))
                self._go_on(WentBackError(topic, number, at, None), "it is not there any more")

    def _numbers_read(self, topic: str) -> set[int]:
        """Partitions of this share that have an offset."""
        before = self._share.key(topic, 0).removesuffix("0")
        numbers = {int(key.removeprefix(before)) for key in self._offsets if key.startswith(before)}
        return {number for number in numbers if self._share.reads(topic, number)}

    @property
    def _log(self) -> TopicLog:
        if self._opened is None:
            self._opened = self._share.address.open()
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


def _rows(batches: list[pa.RecordBatch], topic: str, partition: int) -> pa.RecordBatch:
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=MESSAGE_SCHEMA)
    (batch,) = batches
    count = batch.num_rows
    return pa.RecordBatch.from_arrays(
        [
            batch["key"],
            batch["value"],
            pa.array([topic] * count, pa.string()),
            pa.array([partition] * count, pa.int32()),
            batch["offset"],
            pc.multiply(batch["time_ms"], 1000).cast(pa.timestamp("us", tz="UTC")),
        ],
        schema=MESSAGE_SCHEMA,
    )
