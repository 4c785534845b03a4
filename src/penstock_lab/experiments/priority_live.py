"""The use cases live: a controller with a Spark cluster of one node, producers, topics, triggers; then `perf`."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from penstock import Kind, Operator, Pipeline, RunError, Stream
from penstock.plugins import LogAddress, Stopwatch, now, pause, temporary_folder
from penstock.types import Logic, Per
from penstock_lab.experiments import priority_perf as perf
from penstock_lab.experiments.priority import ISOLATION
from penstock_lab.experiments.priority_perf import needed_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from penstock.plugins import TopicLog
    from penstock_lab.contract import Case, Measures


# The pipelines of the priority thesis' use cases (002, chapter 4) for real, at a small scale: topics in, topics out.
#
# EventTP     source -> parse -> serve -> detect (keyed by producer and batch) -> dispatch
# ArchivalTP  source -> parse -> archive (a time and a tag) -> dispatch
# TP          source -> parse -> count -> dispatch
#
# A tuple takes its service time by waiting: two cores cannot compute for as many slots as take part, and a slot does
# one tuple at a time either way. The detector passes every tuple on and marks the one that makes its batch a raw
# event.


EVENT_SECONDS, ARCHIVE_SECONDS = 0.2, 0.1
"""S_high and S_low of use case 1 at their defaults."""
FEED_SECONDS = {"TP1": 0.4, "TP2": 0.2}
"""S of use case 2."""
THRESHOLD = 50.0
SCHEMA = "source string, batch int, of int, number int, reading double"
"""`of`: how many tuples the batch has."""
DETECTED = f"{SCHEMA}, event boolean"
ARCHIVED = f"{SCHEMA}, archived double, tag string"
_HERE = "penstock_lab.experiments.priority_live"


def _parse(row: dict[str, Any]) -> dict[str, Any]:
    message = json.loads(row["value"])
    return {
        "source": str(message["source"]),
        "batch": int(message["batch"]),
        "of": int(message["of"]),
        "number": int(message["number"]),
        "reading": float(message["reading"]),
    }


def _taking(seconds: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def serve(row: dict[str, Any]) -> dict[str, Any]:
        pause(seconds)
        return row

    return serve


def _archive(row: dict[str, Any]) -> dict[str, Any]:
    pause(ARCHIVE_SECONDS)
    return {**row, "archived": now(), "tag": "disk-1"}


def _judge(_key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Of a producer's batch: how many tuples came, how many of them above the threshold, whether that was enough."""
    tuples, above, decided = state.get if state.exists else (0, 0, False)
    for frame in frames:
        length = int(frame["of"].iloc[0])
        high = above + (frame["reading"] > THRESHOLD).cumsum()
        enough = (high >= needed_for_event(length)) & (not decided)
        # the first that is enough; those behind it change nothing
        yield frame.assign(event=enough & (enough.cumsum() == 1))
        tuples, above, decided = tuples + len(frame), int(high.iloc[-1]), decided or bool(enough.any())
        if tuples < length:
            state.update((tuples, above, decided))
        elif state.exists:
            state.remove()


def _detect(frame: Any) -> Any:
    by_batch = frame.groupBy("source", "batch")
    state = "tuples int, above int, decided boolean"
    return by_batch.applyInPandasWithState(_judge, DETECTED, state, "append", "NoTimeout")


parse = Logic(_parse, schema=SCHEMA)
serve = Logic(_taking(EVENT_SECONDS), schema=SCHEMA)
detect = Logic(_detect, Per.DATAFRAME)
archive = Logic(_archive, schema=ARCHIVED)
count_first = Logic(_taking(FEED_SECONDS["TP1"]), schema=SCHEMA)
count_second = Logic(_taking(FEED_SECONDS["TP2"]), schema=SCHEMA)


def reading_pipeline(name: str, work: tuple[str, ...], log: LogAddress, topic: str, into: str) -> Pipeline:
    """source -> parse -> all of `work` (attributes of this module) -> dispatch."""
    operators = [
        Operator(name="source", kind=Kind.SOURCE, format=log.format, options={**log.options, "subscribe": topic}),
        *(
            Operator(name=operator, run=f"{_HERE}:{operator}", threads=1, cpu=5, memory_mb=32)
            for operator in ("parse", *work)
        ),
        Operator(name="dispatch", kind=Kind.SINK, format=log.format, options={**log.options, "topic": into}),
    ]
    ways = pairwise(operator.name for operator in operators)
    return Pipeline.of(name, operators, [Stream(sender=before, receiver=after) for before, after in ways])


TRIGGERED = frozenset({"dynamic-priority", "fair-priority"})
START_SECONDS, END_SECONDS = 300.0, 90.0
"""Of pipelines that come up, and in which nothing comes out of them at the end."""
CALM_SECONDS = 5.0
WARM_UP, WARM_UP_TUPLES, WARM_UP_SECONDS = "warm-up", 15, 20.0
"""The source of tuples that do not count, how many there are of each partition, and in how long."""
LOW_READING, HIGH_READING = 10.0, 90.0
TRIGGER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class LiveWant:
    """A pipeline: what it asks for, what it reads, its operators behind the one that parses."""

    name: str
    desired: int
    minimum: int
    level: int
    topic: str
    work: tuple[str, ...]

    @property
    def sink(self) -> str:
        return f"{self.name}-out"


USE_1 = (
    LiveWant("EventTP1", 4, 2, 1, "topic1", ("serve", "detect")),
    LiveWant("EventTP2", 4, 2, 1, "topic2", ("serve", "detect")),
    LiveWant("ArchivalTP1", 2, 1, 2, "topic1", ("archive",)),
    LiveWant("ArchivalTP2", 2, 1, 2, "topic2", ("archive",)),
)
"""Half of the document's size, the smallest in which all that is desired, every minimum and the slots are whole."""
USE_2 = (
    LiveWant("TP1", 4, 2, 1, "feed1", ("count_first",)),
    LiveWant("TP2", 2, 1, 2, "feed2", ("count_second",)),
)
"""A quarter of it."""
SLOTS = {1: 8, 2: 5}
PARTITIONS = {"topic1": 4, "topic2": 4, "feed1": 4, "feed2": 2}


class LiveSite:
    """A controller that is up, and the log its pipelines read and write."""

    def __init__(self, folder: Path, wants: Sequence[LiveWant], client: Any) -> None:
        self.wants, self.client = wants, client
        self.address = LogAddress("log", {"path": str(folder / "log")})
        self.log: TopicLog = self.address.open()
        for want in wants:
            self.log.create(want.topic, PARTITIONS[want.topic])
            self.log.create(want.sink, 1)

    def submit(self, policy: str) -> None:
        for want in self.wants:
            pipeline = reading_pipeline(want.name, want.work, self.address, want.topic, want.sink)
            level = None if policy in TRIGGERED else want.level
            self.client.submit(want.name, pipeline, desired=want.desired, minimum=want.minimum, priority=level)

    def settled(self) -> dict[str, int] | None:
        """What everybody holds; None while somebody is on its way from one share to another."""
        rows = self.client.list()
        if {row["state"] for row in rows} - {"active", "waiting"} or any(
            row["held"] != row["assigned"] for row in rows
        ):
            return None
        return {row["name"]: row["held"] for row in rows}

    def await_calm(self, names: Sequence[str]) -> dict[str, int]:
        """Until the shares have been the same for some seconds, and those named have one."""
        watch, calm, before = Stopwatch(), Stopwatch(), self.settled()
        while before is None or calm.seconds() < CALM_SECONDS or not all(before[name] for name in names):
            pause(0.5)
            if watch.seconds() > START_SECONDS:
                raise RunError(f"pipelines did not come up within {START_SECONDS:g} s: {before}")
            after = self.settled()
            if after != before:
                before, calm = after, Stopwatch()
        return before

    def warm_up(self, off: Mapping[str, int]) -> None:
        """Before anything counts, every slot does some tuples: the first ones wait for what Java and Python load, which
        weighs much in minutes and nothing in the document's hours."""
        topics = {want.topic: PARTITIONS[want.topic] * WARM_UP_TUPLES for want in self.wants}
        self.feed({topic: ((WARM_UP_SECONDS, tuples / WARM_UP_SECONDS),) for topic, tuples in topics.items()}, WARM_UP)
        names = [name for name, slots in off.items() if slots]
        self.await_all(names)
        if waiting := {name: self.waiting(name) for name in names if self.waiting(name)}:
            raise RunError(f"tuples that came through no pipeline, and no other did for {END_SECONDS:g} s: {waiting}")

    def feed(
        self, spells: Mapping[str, Sequence[tuple[float, float]]], source: str, look: Callable[[], None] | None = None
    ) -> None:
        """Every topic at its own (seconds, tuples/s) from now on, until all are sent; `look` is called meanwhile."""
        began = now()
        feeds = [
            threading.Thread(target=_feed, args=(self.log, topic, of_topic, began, source), daemon=True)
            for topic, of_topic in spells.items()
        ]
        for feed in feeds:
            feed.start()
        while any(feed.is_alive() for feed in feeds):
            pause(0.5)
            if look is not None:
                look()

    def await_all(self, names: Sequence[str]) -> None:
        """Until everything that was sent is in the sinks of those named, or nothing more comes."""
        watch, before = Stopwatch(), sum(map(self.waiting, names))
        while before and watch.seconds() < END_SECONDS:
            pause(1.0)
            after = sum(map(self.waiting, names))
            if after < before:
                before, watch = after, Stopwatch()

    def waiting(self, name: str) -> int:
        want = next(want for want in self.wants if want.name == name)
        sent, got = (sum(span.messages for span in self.log.spans(topic).values()) for topic in (want.topic, want.sink))
        return max(0, sent - got)

    def overheads(self) -> list[float]:
        """O of every change of priority, as the controller measured it."""
        decisions = [row for row in self.client.decisions() if row["kind"] == "priority" and row["overhead"]]
        return [float(row["overhead"]["total_s"]) for row in decisions]


JAVA_OPTIONS = "JAVA_TOOL_OPTIONS"
ONE_STAGE = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m"
"""Java compiles once and quickly. By itself it compiles anew what runs often, for minutes: as long as a use case lasts,
and at the cost of the tuples, where ten Java processes share two cores."""


@contextmanager
def quick_java() -> Iterator[None]:
    """For the processes that are started meanwhile; what the user has set stays."""
    before = os.environ.get(JAVA_OPTIONS)
    os.environ[JAVA_OPTIONS] = ONE_STAGE if before is None else before
    try:
        yield
    finally:
        if before is None:
            del os.environ[JAVA_OPTIONS]


@contextmanager
def site(use: int, policy: str) -> Iterator[LiveSite]:
    with quick_java(), temporary_folder("use-case") as folder:
        state = folder / "state"
        try:
            penstock.up(nodes=1, slots=SLOTS[use], unit_slots=1, policy=policy, folder=state)
            with penstock.connect(folder=state) as client:
                yield LiveSite(folder, USE_1 if use == 1 else USE_2, client)
        finally:
            penstock.down(state)


def use_case_1_live(case: Case) -> Measures:
    """`batches` batches of BL tuples from every producer, BG seconds apart; EP of them, in the middle, have events."""
    policy, batches, gap, length = case["policy"], case["batches"], case["BG"], case["BL"]
    with_events = round(case["EP"] * batches)
    events = range((batches - with_events) // 2, (batches - with_events) // 2 + with_events)
    with site(1, policy) as place:
        place.submit(policy)
        off = place.await_calm(("EventTP1", "EventTP2"))
        place.warm_up(off)
        if policy in TRIGGERED:
            for name in ("EventTP1", "EventTP2"):
                place.client.trigger(name, "batch-share", field="reading", above=THRESHOLD, share=0.8, for_seconds=1)
        on: dict[str, int] = {}
        producer = place.log.producer()
        begun = now()
        for batch in range(batches):
            reading = HIGH_READING if batch in events else LOW_READING
            for topic in ("topic1", "topic2"):
                for partition in range(PARTITIONS[topic]):
                    source, first = f"{topic}/{partition}", batch * length
                    rows = [(source, batch, length, first + n, reading) for n in range(length)]
                    _send(producer, topic, partition, rows)
            producer.flush()
            while now() < begun + (batch + 1) * gap:
                pause(0.5)
                if batch in events:
                    on = place.settled() or on
        place.await_all([name for name, slots in off.items() if slots])
        sent = {topic: _counted(place.log, topic) for topic in ("topic1", "topic2")}
        got = {want.name: _counted(place.log, want.sink) for want in USE_1}
        overheads = place.overheads()
        producer.close()
    raw = [perf.raw_seconds(sent[topic], got[name]) for topic, name in _EVENT_SINKS]
    event_seconds = perf.complex_event_seconds(raw)
    per_tuple = {want.name: perf.seconds_per_tuple(sent[want.topic], got[want.name]) for want in USE_1}
    return {
        "nodes_off": [off.get(want.name, 0) for want in USE_1],
        "nodes_on": [(on or off).get(want.name, 0) for want in USE_1],
        "TE": float(np.mean(event_seconds)) if event_seconds else None,
        "events": len(event_seconds),
        "TE each": event_seconds,
        "TT high": _mean([per_tuple["EventTP1"], per_tuple["EventTP2"]]),
        "TT low": _mean([per_tuple["ArchivalTP1"], per_tuple["ArchivalTP2"]]),
        "O": _mean(overheads),
        "misjudged": sum(perf.misjudged(sent[topic], got[name], THRESHOLD) for topic, name in _EVENT_SINKS),
        "lost": _lost(sent, got, USE_1, off),
    }


_EVENT_SINKS = (("topic1", "EventTP1"), ("topic2", "EventTP2"))


def use_case_2_live(case: Case) -> Measures:
    """Feed1 at half its high rate, then at the high rate for r1 of its tuples; Feed2 at its own all the time."""
    policy, rate, seconds = case["policy"], case["rate"], case["seconds"]
    low_seconds = seconds * (1 - case["r1"]) / (1 - case["r1"] + case["r1"] / 2)
    with site(2, policy) as place:
        place.submit(policy)
        # under isolation the second gets the rest, which may be nothing
        off = place.await_calm([want.name for want in (USE_2[:1] if policy == ISOLATION else USE_2)])
        place.warm_up(off)
        if policy in TRIGGERED:
            # only now: while the system is cold, arrivals come in lumps
            place.client.trigger(
                "TP1", "arrival-rate", above=0.75 * rate, below=0.7 * rate, for_seconds=TRIGGER_SECONDS
            )
        on: dict[str, int] = {}

        def look() -> None:
            nonlocal on
            on = place.settled() or on

        place.feed(
            {
                "feed1": ((low_seconds, rate / 2), (seconds - low_seconds, rate)),
                "feed2": ((seconds, case["rate2"]),),
            },
            "feed",
            look,
        )
        place.await_all([name for name, slots in off.items() if slots])
        sent = {want.topic: _counted(place.log, want.topic) for want in USE_2}
        got = {want.name: _counted(place.log, want.sink) for want in USE_2}
        overheads = place.overheads()
    return {
        "nodes_off": [off.get(want.name, 0) for want in USE_2],
        "nodes_on": [(on or off).get(want.name, 0) for want in USE_2],
        "TT high": perf.tuple_seconds(sent["feed1"], got["TP1"]),
        "TT low": perf.tuple_seconds(sent["feed2"], got["TP2"]),
        "O": _mean(overheads),
        "lost": _lost(sent, got, USE_2, off),
    }


def _counted(log: TopicLog, topic: str) -> list[perf.Arrival]:
    return [row for row in perf.arrivals(log, topic) if row.source != WARM_UP]


def _feed(log: TopicLog, topic: str, spells: Sequence[tuple[float, float]], began: float, source: str) -> None:
    producer = log.producer()
    number, due = 0, began
    for seconds, rate in spells:
        for _ in range(round(seconds * rate)):
            due += 1 / rate
            while (early := due - now()) > 0:
                pause(min(early, 0.2))
            _send(producer, topic, number % PARTITIONS[topic], [(source, 0, 1, number, LOW_READING)])
            producer.flush()
            number += 1
    producer.close()


def _send(producer: Any, topic: str, partition: int, rows: Sequence[tuple[str, int, int, int, float]]) -> None:
    names = ("source", "batch", "of", "number", "reading")
    values = [json.dumps(dict(zip(names, row, strict=True))).encode() for row in rows]
    producer.send(topic, values, partition=partition, times_ms=[int(1000 * now())] * len(values))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _lost(
    sent: Mapping[str, Sequence[perf.Arrival]],
    got: Mapping[str, Sequence[perf.Arrival]],
    wants: Sequence[LiveWant],
    held: Mapping[str, int],
) -> int:
    """Of those that had slots: tuples that are not there exactly once."""
    return sum(perf.not_there_once(sent[want.topic], got[want.name]) for want in wants if held.get(want.name))
