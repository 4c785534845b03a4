"""`penstock advise` of somebody else's files and addresses: whatever they hold, one line and no traceback.

`pytest tests/fuzz/test_advise.py --fuzz 10000` makes so many calls of each kind.
"""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from mutations import DOCUMENT_MUTATIONS, at, paths, replaced, spoiled_bytes
from seeds import event_log, offsets_of_batch
from trying import faults

from penstock.base.errors import BadInputError

SHARE = 0.1
"""Calls of each kind, as a part of --fuzz: some are enough to see that nothing has come loose."""
FIGURES: tuple[Any, ...] = (
    *(0, -1, 1, 5e-324, 1e-310, 1e-30, 1e15, 1e16, 2**53 + 1, 2**63, 1e100, 1.3e154, 1.7e308, 10**400, 10**4000),
    *(True, None, "", "x", "²", "٣", "1e", "..", "NaN", [], {}, [1], {"a": 1}, "9" * 400),
    *("0001-01-01T00:00:00", "9999-12-31T23:59:59.999Z", "2026-01-01T12:00:00.000Z"),
)
RATES = ("5e-324", "1e-300", "1e308", "1e15", "nan", "inf", "-1", "0", "100")


def spoiled_document(draw: Random, document: Any) -> Any:
    for _ in range(draw.choice((1, 1, 2, 4))):
        with suppress(LookupError, TypeError, ValueError, RecursionError):
            if draw.random() < 0.6:
                leaves = [path for path in paths(document) if not isinstance(at(document, path), dict | list)]
                document = replaced(document, draw.choice(leaves), deepcopy(draw.choice(FIGURES)))
            else:
                document = draw.choice(DOCUMENT_MUTATIONS)(draw, document)
    return document


def spoiled_lines(draw: Random, content: bytes) -> bytes:
    """One line in ten is spoiled; in some files the same figure of every line."""
    lines = content.decode().splitlines()
    out = []
    seed, everywhere = draw.random(), draw.random() < 0.3
    for line in lines:
        own = Random(seed) if everywhere else draw  # noqa: S311 - a test
        try:
            spoil = everywhere or draw.random() < 0.1
            out.append(json.dumps(spoiled_document(own, json.loads(line))) if spoil else line)
        except ValueError:
            out.append(line)
    return "\n".join(out).encode("utf-8", "surrogatepass") + b"\n"


def options(draw: Random) -> list[str]:
    words = []
    for option, values in (
        ("--rate", RATES),
        ("--latency", RATES),
        ("--price", RATES),
        ("--utilisation", ("0.5", *RATES)),
    ):
        if draw.random() < 0.25:
            words += [option, draw.choice(values)]
    return [*words, *(["--json"] if draw.random() < 0.5 else [])]


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    return max(10, int(SHARE * request.config.getoption("--fuzz")))


def try_all(count: int, folder: Path, capsys: pytest.CaptureFixture[str], call: Any) -> None:
    wrong = {}
    for number in range(count):
        place = folder / str(number)
        (place / "out").mkdir(parents=True)
        words = call(Random(number), place)  # noqa: S311 - a test
        if found := faults(["advise", *words], place, capsys):
            wrong[number] = (words, found)
        shutil.rmtree(place)
    assert wrong == {}


def test_event_logs(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(draw: Random, place: Path) -> list[str]:
        content = spoiled_lines(draw, event_log())
        if draw.random() < 0.2:
            content = spoiled_bytes(draw, content, [b"\x00\xff", event_log()])
        name = draw.choice(("events.log", "events.log", "events.zstd", "events.gz", "events.lz4"))
        (place / name).write_bytes(content)
        return [str(place / name), *options(draw)]

    try_all(count, tmp_path, capsys, call)


def test_checkpoints(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("²", "٣", "-1", "007", "9" * 30, "1e3", ".3.crc", "5.tmp", "a", "\uff16")

    def call(draw: Random, place: Path) -> list[str]:
        folder = place / "checkpoint" / "offsets"
        folder.mkdir(parents=True)
        for number in range(6):
            content = offsets_of_batch(number)
            if draw.random() < 0.5:
                content = spoiled_lines(draw, content)
            (folder / str(number)).write_bytes(content)
        for name in draw.sample(names, draw.choice((0, 0, 1, 2))):
            (folder / name).write_bytes(offsets_of_batch(3))
        words = [str(place / "checkpoint"), "--slots", draw.choice(("1", "4", "0", "1000000", "1" + "0" * 30))]
        if draw.random() < 0.5:
            (place / "ends.json").write_text(json.dumps(spoiled_document(draw, {"t": {"0": 900, "1": 950}})))
            words += ["--end-offsets", str(place / "ends.json")]
        return [*words, *options(draw)]

    try_all(count, tmp_path, capsys, call)


# Addresses.

GAUGES = ("inputRate_total", "processingRate_total", "latency", "states_rowsTotal", "states_usedBytes")
VALUES = (
    "1e",
    "..",
    "+",
    "-.e",
    "inf",
    "+Inf",
    "NaN",
    "1e308",
    "5e-324",
    "٣",
    "²",
    "9" * 400,
    "0x10",
    "",
    "17",
    "250.5",
)


def metrics(draw: Random) -> bytes:
    lines = [f"m_driver_spark_streaming_q_{gauge}_Value {draw.choice(VALUES)}" for gauge in GAUGES]
    lines.append(
        f'metrics_executor_totalCores{{executor_id="{draw.choice(("1", "driver", ""))}"}} {draw.choice(VALUES)}'
    )
    draw.shuffle(lines)
    return "\n".join(lines).encode()


def answer(draw: Random) -> bytes:
    body = metrics(draw)
    if draw.random() < 0.3:
        body = spoiled_bytes(draw, body, [b"\x00\xff"])
    ok = b"HTTP/1.1 200 OK\r\n"
    whole = ok + b"Content-Length: %d\r\n\r\n" % len(body) + body
    return draw.choice(
        (
            whole,
            whole,
            whole,
            b"not http at all\r\n\r\n",
            b"",
            body,
            ok + b"Content-Length: 100000\r\n\r\nabc",
            ok + b"Content-Length: -5\r\n\r\n" + body,
            ok + b"Content-Length: x\r\n\r\n" + body,
            ok + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
            ok + b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\nabc",
            ok + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
            ok + b"X: a\r\n" * 300 + b"\r\n",
            b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
            b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
            b"HTTP/1.1 302 Found\r\nLocation: http://a b\x00/\r\n\r\n",
            b"HTTP/1.1 999999999999 Odd\r\n\r\n",
            b"HTTP/1.1 abc Odd\r\n\r\n",
            b"HTTP/9.9 200 OK\r\n\r\n",
            b"HTTP/1.1 500 \x1b[31mred\r\n\r\n",
            spoiled_bytes(draw, whole, [b"\r\n", b"\x00"]),
        )
    )


class Answering:
    """Answers every connection with the same bytes, and closes it."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.content = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.getsockname()[1]}"

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self.server.accept()
                with caller, suppress(OSError):
                    caller.settimeout(5)
                    caller.recv(4096)
                    caller.sendall(self.content)

    def close(self) -> None:
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self._thread.join()


@pytest.fixture
def answering() -> Iterator[Answering]:
    made = Answering()
    yield made
    made.close()


def test_addresses(count: int, tmp_path: Path, answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    def call(draw: Random, _place: Path) -> list[str]:
        answering.content = answer(draw)
        return [answering.address, "--seconds", "0", *options(draw)]

    try_all(2 * count, tmp_path, capsys, call)


@pytest.mark.parametrize(
    "address", ["http://", "http://[", "http://127.0.0.1:99999999", "http://a b", "http://\x00", "https://%"]
)
def test_addresses_that_are_none(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    assert faults(["advise", address, "--seconds", "0"], tmp_path, capsys) == []


def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.control.attached import batch_sources as endpoint

    monkeypatch.setattr(endpoint, "ANSWER_SECONDS", 0.3)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            caller, _ = server.accept()
            with caller, suppress(OSError):
                caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not over.wait(0.05):
                    caller.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(BadInputError, match=r"no whole answer within 0\.3 s"):
            endpoint.answer_of(f"http://127.0.0.1:{server.getsockname()[1]}")
        over.set()
        thread.join()
