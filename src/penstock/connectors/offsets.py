"""Arithmetic of offsets: where to begin, how far a batch may go, what each task reads. No log is asked here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, nearest
from penstock.connectors.log_contract import WentBackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.connectors.log_contract import Span

Offsets = dict[str, dict[str, int]]
"""The next offset by topic and partition (as text: it is kept as JSON)."""
EARLIEST, LATEST = -2, -1
"""Values in JSON of offsets, as for Spark's connector."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages of one partition, from `first` up to `end`."""

    topic: str
    partition: int
    first: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.first


def resolved(where: str, spans: Mapping[str, Mapping[int, Span]], who: str) -> Offsets:
    """`earliest`, `latest`, or JSON as Spark's connector takes it (-2: earliest, -1: latest)."""
    if where in {"earliest", "latest"}:
        early = where == "earliest"
        return {t: {str(p): s.first if early else s.end for p, s in parts.items()} for t, parts in spans.items()}
    try:
        given = json.loads(where)
        asked = {t: {int(p): int(offset) for p, offset in parts.items()} for t, parts in given.items()}
    except (ValueError, AttributeError) as error:
        raise BadInputError(f"{who}: startingOffsets: expected earliest, latest or JSON of offsets") from error
    for topic, by_number in asked.items():
        _check_asked(topic, by_number, spans, f"{who}: startingOffsets")
    offsets: Offsets = {}
    for topic, parts in spans.items():
        offsets[topic] = {}
        for number, span in parts.items():
            offset = asked.get(topic, {}).get(number, EARLIEST)
            if offset > span.end:
                where_it_ends = f"topic '{topic}', partition {number} ends at {span.end:,}"
                raise BadInputError(f"{who}: startingOffsets: {where_it_ends}, found {offset:,}")
            offsets[topic][str(number)] = span.first if offset == EARLIEST else span.end if offset == LATEST else offset
    return offsets


def _check_asked(topic: str, asked: Mapping[int, int], spans: Mapping[str, Mapping[int, Span]], where: str) -> None:
    """Reject topics and partitions that the source does not read: they would be ignored, and the source would begin
    elsewhere."""
    if topic not in spans:
        raise BadInputError(f"{where}: the source does not read topic '{topic}'; {nearest(topic, spans)}")
    for number, offset in asked.items():
        if number not in spans[topic]:
            raise BadInputError(f"{where}: topic '{topic}' has no partition {number}, it has {len(spans[topic])}")
        if offset < EARLIEST:
            raise BadInputError(
                f"{where}: topic '{topic}', partition {number}: expected an offset, {LATEST} (latest) or {EARLIEST} "
                f"(earliest), found {offset}"
            )


def went_back(reached: Offsets, spans: Mapping[str, Mapping[int, Span]]) -> Iterator[WentBackError]:
    """Yield an error for every partition that ends before `reached`, or is gone."""
    for topic, parts in reached.items():
        for text, offset in parts.items():
            there = spans.get(topic, {}).get(int(text))
            if there is None or there.end < offset:
                yield WentBackError(topic, int(text), offset, there)


def begun_anew(reached: Offsets, gone: Sequence[WentBackError]) -> Offsets:
    """`reached` without the partitions that went back: they begin with their first message."""
    without = {(error.topic, str(error.partition)) for error in gone}
    return {
        topic: {text: offset for text, offset in parts.items() if (topic, text) not in without}
        for topic, parts in reached.items()
    }


def admitted(reached: Offsets, spans: Mapping[str, Mapping[int, Span]], most: int) -> Offsets:
    """Return offsets from `reached` towards the ends of all partitions, at most `most` messages.

    The backlog of partition i is w_i, in all W. If W is more than `most`, partition i gets floor(most w_i / W) and the
    longest queues one more each, so that all are emptied at the same time. A new partition begins with its first.
    """
    waiting: dict[tuple[str, int], int] = {}
    at: dict[tuple[str, int], int] = {}
    for topic, parts in spans.items():
        for number, span in parts.items():
            at[topic, number] = reached.get(topic, {}).get(str(number), span.first)
            waiting[topic, number] = max(0, span.end - at[topic, number])
    total = sum(waiting.values())
    take = dict(waiting)
    if total > most:
        take = {where: most * count // total for where, count in waiting.items()}
        left = most - sum(take.values())
        for where in sorted(waiting, key=lambda where: (-waiting[where], where)):
            if left and take[where] < waiting[where]:
                take[where] += 1
                left -= 1
    result: Offsets = {topic: dict(parts) for topic, parts in reached.items()}
    for (topic, number), offset in at.items():
        result.setdefault(topic, {})[str(number)] = offset + take[topic, number]
    return result


def pieces_between(start: Offsets, end: Offsets, spans: Mapping[str, Mapping[int, Span]]) -> list[Piece]:
    """Return the pieces that a batch reads. A partition that is not in `start`, or that ends before its start because a
    log went back, begins with its first message."""
    pieces = []
    for topic, parts in end.items():
        for text, last in parts.items():
            number = int(text)
            span = spans.get(topic, {}).get(number)
            if span is None:
                raise BadInputError(f"topic '{topic}' has no partition {number} any more: it was made anew")
            first = start.get(topic, {}).get(text, span.first)
            if first > last:
                first = span.first
            if first < last:
                pieces.append(Piece(topic, number, first, last))
    return pieces


def cut_evenly(pieces: Sequence[Piece], shares: int) -> list[list[Piece]]:
    """Return `shares` lists, equal up to one message, in order: a partition may be read by several tasks. The same
    pieces are always cut the same way."""
    total = sum(piece.messages for piece in pieces)
    edges = [total * number // shares for number in range(1, shares + 1)]
    result: list[list[Piece]] = [[] for _ in range(shares)]
    share, passed = 0, 0
    for piece in pieces:
        first = piece.first
        while first < piece.end:
            while passed >= edges[share]:
                share += 1
            step = min(piece.end - first, edges[share] - passed)
            result[share].append(Piece(piece.topic, piece.partition, first, first + step))
            first += step
            passed += step
    return result


def lag(end: Offsets, latest: Offsets) -> dict[str, int]:
    """Return the number of unread messages by topic/partition."""
    return {
        f"{topic}/{number}": max(0, last - end.get(topic, {}).get(number, 0))
        for topic, parts in latest.items()
        for number, last in parts.items()
    }
