"""The messages that a source bundle reads: some partitions, batch by batch, from the offsets of a commit.

The partitions of every topic are dealt round robin to the bundles that share a source; each continues from the offset
of a partition, whichever bundle read it before. A new partition is dealt by the same rule, and moves no other.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.clock import Stopwatch
from penstock.connectors.log_contract import DamagedLogError, GoneError, LogError, UnknownTopicError, WentBackError
from penstock.connectors.offsets import resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.connectors.log_contract import Span, TopicLog
    from penstock.connectors.topic_address import LogAddress

LOOK_SECONDS, IDLE_LOOK_SECONDS = 0.05, 0.5
"""Seconds between two looks at a log while messages arrive, and after a long silence."""
PATIENCE_SECONDS = 300.0
"""Seconds a log may be away before its reader gives up."""
MOST_BYTES = 32 * 2**20
"""Max bytes of messages that are read at once, except for a single larger one."""
MOST_REACH = 1 << 20
"""See `next_reach`."""

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
"""Schema of the rows of a source that is a topic."""

_LOG = logging.getLogger(__name__)


def look_interval(quiet_seconds: float) -> float:
    """Return a tenth of the seconds without messages, within bounds: asking a broker all the time has a cost, and a
    message waits at most a tenth of the silence before it."""
    return min(max(quiet_seconds / 10, LOOK_SECONDS), IDLE_LOOK_SECONDS)


def next_reach(reach: int, rows: int, most: int) -> int:
    """Return the offsets to look through for every wanted message, after `rows` of `most` came out of `reach` times
    `most`: offsets have holes (aborted transactions, compaction). Doubles if fewer than half of them came, halves if
    all did."""
    if 2 * rows < most:
        return min(MOST_REACH, 2 * reach)
    return reach if rows < most else max(1, reach // 2)


@dataclass(frozen=True, slots=True)
class TopicShare:
    """The part of some topics that one of `sharers` reads."""

    source: str
    address: LogAddress
    topics: tuple[str, ...]
    starting: str = "earliest"
    goes_on: bool = False
    """If messages are gone: skip them, and report their number."""
    sharer: int = 0
    sharers: int = 1

    def key(self, topic: str, partition: int) -> str:
        """Return the key of an offset in a commit; no source's name has a slash."""
        return f"{self.source}/{topic}/{partition}"

    def reads(self, topic: str, partition: int) -> bool:
        """Return whether partition p of topic i is read by this sharer: (i + p) mod sharers. The number of partitions
        does not matter: a bundle that got a partition in the middle of a generation would know only the offset at the
        start of that generation."""
        return (self.topics.index(topic) + partition) % self.sharers == self.sharer


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one partition. `end`: the next offset; `gone`: messages lost before these. `went_back`: the partition
    ended before the offset that was read, and these are its first."""

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
    """A source's share of topics. `offsets` are those of the commit, by `TopicShare.key`. If it has none of this
    source, every present partition begins as the source's options set; a later one begins with its first message."""

    def __init__(self, share: TopicShare, offsets: Mapping[str, int]) -> None:
        self._share = share
        self._offsets = dict(offsets)
        self._begun = any(key.startswith(f"{share.source}/") for key in offsets)
        self._opened: TopicLog | None = None
        self._spans: dict[tuple[str, int], Span] = {}
        self._looked: Stopwatch | None = None
        self._quiet = Stopwatch()
        self._away: Stopwatch | None = None
        self._turn = 0
        self._reach: dict[str, int] = {}
        self._vanished: frozenset[str] = frozenset()
        self._notes: list[str] = []

    @property
    def begun(self) -> bool:
        """Whether the first offset of every partition is known: from the log, or from a commit."""
        return self._begun

    @property
    def offsets(self) -> dict[str, int]:
        """Next offset of every partition of this share; those of other shares are left out."""
        return {self._share.key(*where): self._at(where, span) for where, span in self._spans.items()}

    @property
    def vanished(self) -> frozenset[str]:
        """Partitions of this share that are not there any more: their offsets must leave the commit. One that comes
        back has other messages, and begins with its first."""
        return self._vanished

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
        if messages.went_back:
            where = messages.key.partition("/")[2]
            self._notes.append(
                f"topic and partition {where}: it went back (made anew, or messages lost), and was read anew"
            )

    def take_notes(self) -> list[str]:
        """Return notes for the report on partitions that went back or vanished since the last call. Messages removed by
        retention are counted (`Messages.gone`), and are no note."""
        # a look at the log may add one meanwhile
        return [self._notes.pop(0) for _ in range(len(self._notes))]

    def _next(self, most: int) -> Messages | None:
        self._look()
        # a partition that ends before its read offset counts too: it went back
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
        messages = self._read(topic, partition, first, most)
        return None if messages is None else replace(messages, gone=gone, went_back=went_back)

    def _read(self, topic: str, partition: int, first: int, most: int) -> Messages | None:
        """Return messages; None if the log has changed since it was looked at."""
        span, key = self._spans[topic, partition], self._share.key(topic, partition)
        reach = self._reach.get(key, 1)
        end = min(span.end, first + most * reach)
        try:
            batches, is_cut = first_messages(self._log.read(topic, partition, first, end), most, MOST_BYTES)
        except (GoneError, UnknownTopicError):
            if not self._share.goes_on:
                raise
            self._looked = None  # the next look finds the present messages, and missing ones are counted
            return None
        rows = _rows(batches, topic, partition)
        if is_cut:
            end = rows["offset"][-1].as_py() + 1
        if rows.num_rows >= most or (not is_cut and end < span.end):
            self._reach[key] = next_reach(reach, rows.num_rows, most)
        return Messages(key, end, rows)

    def _go_on(self, error: GoneError, missed: str) -> None:
        """Continue after lost messages if that was chosen; else raise."""
        if not self._share.goes_on:
            raise error
        _LOG.warning("topic '%s', partition %d: %s", error.topic, error.partition, missed)

    def _at(self, where: tuple[str, int], span: Span) -> int:
        return self._offsets.get(self._share.key(*where), span.first)

    def _look(self) -> None:
        """At what there is by now, now and then."""
        if self._looked is not None and self._looked.seconds() < look_interval(self._quiet.seconds()):
            return
        share = self._share
        spans = {topic: dict(self._log.spans(topic)) for topic in share.topics}
        everywhere = [(topic, number) for topic in share.topics for number in sorted(spans[topic])]
        mine = {share.key(*where): where for where in everywhere if share.reads(*where)}
        if not self._begun:
            begins = resolved(share.starting, spans, f"source '{share.source}'")
            self._offsets |= {key: begins[topic][str(number)] for key, (topic, number) in mine.items()}
        vanished = self._not_there(spans)
        before, self._spans = self._spans, {where: spans[where[0]][where[1]] for where in mine.values()}
        # only after the new spans are set: `offsets` must not report that a vanished partition begins anew
        for key in vanished:
            del self._offsets[key]
        for key, where in mine.items():
            self._offsets.setdefault(key, self._spans[where].first)
        self._vanished = (self._vanished | vanished) - mine.keys()
        self._begun = True
        if self._spans != before:
            self._quiet = Stopwatch()
        self._looked = Stopwatch()

    def _not_there(self, spans: Mapping[str, Mapping[int, Span]]) -> set[str]:
        """Partitions with an offset that are no more: a topic that was made anew may have fewer than were read of it.
        Raises, unless going on was chosen."""
        vanished = set()
        for topic, parts in spans.items():
            for number in sorted(self._numbers_read(topic) - parts.keys()):
                key = self._share.key(topic, number)
                self._go_on(WentBackError(topic, number, self._offsets[key], None), "it is not there any more")
                self._notes.append(f"topic and partition {topic}/{number}: it is not there any more (made anew)")
                vanished.add(key)
        return vanished

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


def first_messages(batches: Iterable[pa.RecordBatch], most: int, size: int) -> tuple[list[pa.RecordBatch], bool]:
    """Return at most `most` messages of at most `size` bytes together, but at least one; and whether the size was
    reached."""
    taken: list[pa.RecordBatch] = []
    for batch in batches:
        sizes = pc.add(_lengths(batch["key"]), _lengths(batch["value"]))
        fitting = max(int(not taken), pc.sum(pc.less_equal(pc.cumulative_sum(sizes), size)).as_py())
        taken.append(batch.slice(0, min(most, fitting)))
        most, size = most - taken[-1].num_rows, size - pc.sum(sizes).as_py()
        if most <= 0 or size <= 0:
            return taken, True
    return taken, False


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _rows(batches: list[pa.RecordBatch], topic: str, partition: int) -> pa.RecordBatch:
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
    if not whole:
        return pa.RecordBatch.from_pylist([], schema=MESSAGE_SCHEMA)
    (batch,) = whole
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
