"""A producer at work: every message leaves when it is due, with the time it left, and the rate is kept or it is said by
how much it is not."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch, now, pause
from penstock.errors import BadInputError, nearest
from penstock.workloads.producing.data import making
from penstock.workloads.producing.rates import producer_load
from penstock.workloads.producing.targets import target_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.dataflow.load import Load
    from penstock.workloads.producing.spec import ProducerSpec
    from penstock.workloads.producing.targets import ProducerTarget

TICK_SECONDS = 0.02
MOST_AT_ONCE = 2_000
"""Messages of one producer between two looks at the clock."""
KEPT = 0.95
"""The part of the rate that must be kept."""
GRACE_SECONDS = 0.5
"""What a producer that keeps its rate may need behind its last message: to look at the clock, and to flush."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What a producer did: `messages` of the `due` ones were in the log after `seconds`, and the last of them was due
    after `due_seconds`. `behind_seconds` is the longest that the oldest message had waited to be sent."""

    messages: int
    due: int
    seconds: float
    due_seconds: float
    behind_seconds: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def asked_rate(self) -> float:
        return self.due / self.due_seconds if self.due_seconds else 0.0

    @property
    def late_seconds(self) -> float:
        """By how much the last message was there after it was due."""
        return max(0.0, self.seconds - self.due_seconds)

    @property
    def kept(self) -> bool:
        """The last message was not late (`allowed_late`). Whoever is stopped may leave a few unsent that just became
        due."""
        return self.messages >= KEPT * self.due and self.late_seconds <= allowed_late(self.due_seconds)

    def document(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "seconds": round(self.seconds, 3),
            "rate": round(self.rate, 3),
            "asked_rate": round(self.asked_rate, 3),
            "due": self.due,
            "late_seconds": round(self.late_seconds, 3),
            "behind_seconds": round(self.behind_seconds, 3),
            "kept": self.kept,
        }


def allowed_late(due_seconds: float) -> float:
    """A part of 1 - KEPT of the time that was given, and what every producer needs behind its last message."""
    return (1 - KEPT) * due_seconds + GRACE_SECONDS


@dataclass
class _Stream:
    """One sequence of messages: `partition` where it has a producer of its own."""

    producer: int
    partition: int | None
    sent: int = 0


def produce(
    spec: ProducerSpec,
    listen: Callable[[int, float], None] = lambda messages, seconds: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Produced:
    """Until its end, or until `stopped`; `listen` hears of messages and seconds so far."""
    load = producer_load(str(spec.rate))
    if spec.seconds is None and spec.messages is None and load.spells[-1][1] == 0 and not load.repeats:
        raise BadInputError(f"rate '{spec.rate}' ends with nothing: give seconds or messages")
    make = making(spec)
    _check_key(spec, make)
    target = target_of(spec)
    streams = [_Stream(0, None)]
    if spec.each_partition:
        streams = [_Stream(number, number) for number in range(target.partitions)]
    # a limit of seconds is one for what is due: what is late is sent behind it, as long as the rate may still be kept
    end_seconds = math.inf if spec.seconds is None else float(spec.seconds)
    watch, behind, at = Stopwatch(), 0.0, 0.0
    try:
        while not stopped():
            at = min(watch.seconds(), end_seconds)
            done = []
            for stream in streams:
                due = _due(load, at, spec)
                if stream.sent < due:
                    behind = max(behind, at - float(load.due_seconds(stream.sent, stream.sent + 1)[0]))
                    _send(stream, min(due, stream.sent + MOST_AT_ONCE), make, target, spec)
                done.append(stream.sent >= due)
            target.tick()
            listen(sum(stream.sent for stream in streams), at)
            over = at == end_seconds or all(stream.sent == spec.messages for stream in streams)
            if over and (all(done) or watch.seconds() > end_seconds + allowed_late(end_seconds)):
                break
            if all(done):
                pause(TICK_SECONDS)
    finally:
        target.close()
    due = _due(load, at, spec)
    # where a number of messages ends it, they were to take until the last of them was due
    due_seconds = at if spec.messages is None or due < spec.messages else float(load.due_seconds(due - 1, due)[0])
    return Produced(
        sum(stream.sent for stream in streams), due * len(streams), watch.seconds(), min(at, due_seconds), behind
    )


def _check_key(spec: ProducerSpec, make: Callable[[int, int], dict[str, Any]]) -> None:
    """A field that the first message does not have is a slip; later ones may be without it."""
    if spec.key is None:
        return
    first = make(int(spec.first), 0)
    if spec.key not in first:
        raise BadInputError(f"key: messages have no field '{spec.key}'; {nearest(spec.key, first)}")


def _key(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


def _due(load: Load, at: float, spec: ProducerSpec) -> int:
    due = load.due(at)
    return due if spec.messages is None else min(due, spec.messages)


def _send(
    stream: _Stream, until: int, make: Callable[[int, int], dict[str, Any]], target: ProducerTarget, spec: ProducerSpec
) -> None:
    sent = now()
    rows = [make(int(spec.first) + number, stream.producer) for number in range(stream.sent, until)]
    values = [json.dumps({**row, "sent": sent}, default=str).encode() for row in rows]
    keys = None if spec.key is None else [_key(row.get(spec.key)) for row in rows]
    target.send(values, keys, stream.partition, int(sent * 1000))
    stream.sent = until
