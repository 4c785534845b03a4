"""A generation that reads topics, in the test's own process: a single bundle, and so no links."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from test_engine import A
from topic_chaos import mark, topic_pipeline

from penstock.base.clock import Stopwatch, pause
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.connectors.log_contract import LogError, Span
from penstock.connectors.topic_address import parse_log
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.engines.placed.bundle.generation import Generation
from penstock.engines.placed.bundle_plan import Code, lay_out
from penstock.engines.placed.endpoints import topic_shares
from penstock.engines.placed.flow.bundle import BundleFlow
from penstock.engines.placed.messages import GenerationOrder, Report, StagedReport
from penstock.engines.placed.wire import Credentials
from penstock.runtime.segment import Segment


class OneBundle:
    """`offsets` are those of the commit it goes on from; `staged` is what it said of every epoch."""

    def __init__(self, folder: Path, offsets: dict[str, int], **source_options: str) -> None:
        address = parse_log(f"log:{folder / 'log'}")
        pipeline = topic_pipeline(address, address, **source_options)
        schemas = {"op": pa.schema([("value", pa.binary())])}
        code = Code(pipeline, {"op": Logic(mark)}, schemas, {}, audit=False, topics=topic_shares(pipeline))
        segment = tuple(pipeline.operators)
        plan = lay_out(code, [segment], {A: dict.fromkeys(segment, 1)}, lambda _op, count: float(count), "plan")
        (bundle,) = plan.codes.values()
        order = GenerationOrder(
            "r", 1, 1, 0, frozenset(), (), (), {}, offsets, {}, (0, 0),
            held=False, careful=False, load=Load.constant(1.0), began=0.0, limit=None, checkpoint=str(folder),
        )  # fmt: skip
        self.staged: list[StagedReport] = []
        self.generation = Generation(
            bundle,
            order,
            Credentials(b"x" * 32),
            BundleFlow(),
            threading.Condition(threading.RLock()),
            self._hear,
            self._crash,
        )

    def _hear(self, report: Report, _body: bytes) -> None:
        if isinstance(report, StagedReport):
            self.staged.append(report)

    def _crash(self, error: BaseException) -> None:
        raise error

    def stage(self, seconds: float = 5.0) -> bool:
        """Opens the next epoch; whether it was staged within so long."""
        epochs, watch = len(self.staged), Stopwatch()
        self.generation.open_epoch(epochs + 1, hold=False)
        return self.waits(epochs, seconds - watch.seconds())

    def waits(self, epochs: int, seconds: float) -> bool:
        watch = Stopwatch()
        while len(self.staged) == epochs and watch.seconds() < seconds:
            pause(0.01)
        return len(self.staged) > epochs


def test_partitions_that_vanished_or_went_back_are_said_with_an_epoch(tmp_path: Path) -> None:
    EmbeddedLog(tmp_path / "log").create("in", 2)
    run = OneBundle(tmp_path, {"src": 0, "src/in/0": 7, "src/in/1": 0, "src/in/2": 5}, failOnDataLoss="false")
    run.generation.start({})
    try:
        watch = Stopwatch()
        while len([note for message in run.staged for note in message.notes]) < 2 and watch.seconds() < 5:
            assert run.stage()
    finally:
        run.generation.close()
    assert sorted(note for message in run.staged for note in message.notes) == [
        "topic and partition in/0: it went back (made anew, or messages lost), and was read anew",
        "topic and partition in/2: it is not there any more (made anew)",
    ]
    assert run.staged[-1].offsets == {"src/in/0": 0, "src/in/1": 0, "src/in/2": None}
    assert set(run.staged[-1].lag) == {"src/in/0", "src/in/1"}
    # it is no tuple of a sink
    assert all(message.shown == () for message in run.staged)


def test_what_code_opened_is_closed_before_the_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EmbeddedLog(tmp_path / "log").create("in", 1)
    closed = threading.Event()

    def close(_segment: Segment) -> None:
        pause(0.2)
        closed.set()

    monkeypatch.setattr(Segment, "close", close)
    run = OneBundle(tmp_path, {"src": 0})
    run.generation.start({})
    run.generation.close()
    run.generation.wait_until_closed()
    assert closed.is_set()


def test_no_epoch_is_staged_before_it_is_known_where_partitions_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a commit has no offsets of them, and whoever goes on from it begins with the first message there is."""
    log = EmbeddedLog(tmp_path / "log")
    log.create("in", 1)
    producer = log.producer()
    producer.send("in", [b"1"] * 10)
    producer.close()
    run = OneBundle(tmp_path, {"src": 0}, startingOffsets="latest")
    away, spans = threading.Event(), EmbeddedLog.spans

    def sometimes_away(self: EmbeddedLog, topic: str) -> dict[int, Span]:
        if away.is_set():
            raise LogError("no answer")
        return spans(self, topic)

    monkeypatch.setattr(EmbeddedLog, "spans", sometimes_away)
    away.set()
    run.generation.start({})
    try:
        assert not run.stage(0.2)
        away.clear()
        assert run.waits(0, 5.0)
    finally:
        run.generation.close()
    assert run.staged[0].offsets == {"src/in/0": 10}
