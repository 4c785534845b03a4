"""A real server under people who mean it harm: requests that never end, answers that are not read, logs that grow."""

from __future__ import annotations

import http.client
import json
import logging
import random
import resource
import select
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from service_builders import READER, WRITER, Served, serve

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.service import connections
from penstock.service import server as bounded_log
from penstock.service.connections import Crowd, LimitedServer, limited_protocol
from penstock.service.server import BoundedHandler, RepeatFilter, listening, server_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-a: "


class Listening:
    """The whole service on a port, in a thread."""

    def __init__(self, served: Served, crowd: Crowd) -> None:
        self.served = served
        self.crowd = crowd
        self.listener = listening("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]
        config = server_config(served.app)
        config.http = limited_protocol(crowd)
        self._server = LimitedServer(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self.listener]})
        self._thread.start()

    def connect(self, data: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection.sendall(data)
        return connection

    def ask(self, method: str, path: str, headers: dict[str, str] = WRITER, body: Any = None) -> tuple[int, float]:
        """Status and seconds."""
        watch = Stopwatch()
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as client:
            client.request(method, path, None if body is None else json.dumps(body), headers)
            answer = client.getresponse()
            answer.read()
        return answer.status, watch.seconds()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Listening]:
    served = serve(tmp_path, nodes=4)
    served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "desired": 2}, 201)
    found = Listening(served, Crowd(max_open=300, max_waiting_per_peer=200))
    yield found
    found.close()
    served.close()


def until(true: Any, seconds: float = 10.0) -> None:
    watch = Stopwatch()
    while not true():
        assert watch.seconds() < seconds, "it did not come true"
        pause(0.02)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except ConnectionError:
        return True


def test_half_open_requests_make_room_and_others_are_answered(server: Listening) -> None:
    with ExitStack() as held:
        halves = [held.enter_context(closing(server.connect(HALF))) for _ in range(500)]
        for _ in range(5):
            assert server.ask("GET", "/health")[0] == 200
            assert server.ask("PATCH", "/v1/pipelines/a", body={"priority": 1})[0] == 200
        assert server.crowd.sizes[0] <= 201
        assert is_closed(halves[0]), "the oldest gave way"


def test_unfinished_requests_end_at_their_deadline(server: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.6)
    post = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
    refused = b"POST /v1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
    with ExitStack() as held:
        silent, header, body, answered = (
            held.enter_context(closing(server.connect(data))) for data in (b"", HALF, post, refused)
        )
        watch = Stopwatch()
        while watch.seconds() < 1.5:
            for trickling in (header, body, answered):
                # a byte now and then does not put the end off
                with suppress(ConnectionError):
                    trickling.sendall(b"x")
            pause(0.1)
        assert server.crowd.sizes == (0, 0)
        assert is_closed(silent)


def test_an_answer_that_is_not_read_is_dropped(server: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.3)
    one = b"GET /assets/uPlot.js HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer may-read\r\n\r\n"
    with closing(server.connect()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(one * 200)
        until(lambda: server.crowd.sizes[0] == 0)


def test_hanging_up_in_the_middle_logs_nothing(server: Listening, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        server.connect(b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{").close()
    until(lambda: server.crowd.sizes[0] == 0)
    assert server.ask("GET", "/health")[0] == 200
    assert "Traceback" not in caplog.text


SOUND = b'{"name": "a", "pipeline": "linear"}'
REQUEST = (
    b"POST /v1/pipelines HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer may-do-all\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(SOUND), SOUND)
)
# fmt: off
INSERTED = [
    b"\r\n", b"\n", b"\0", b" ", b":", b"\r\n\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: elsewhere\r\n",
    b"\xff" * 50, b"%00", b"/../", b"HTTP/9.9", b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"x" * 70_000,
    b"Expect: 100-continue\r\n", b"Content-Length: 99999999999999999999\r\n", b"Content-Length: -1\r\n",
]
# fmt: on


def spoilt(draw: random.Random) -> bytes:
    data = bytearray(REQUEST * draw.choice([1, 1, 3]))
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        at, kind = draw.randrange(len(data) + 1), draw.randrange(4)
        if kind == 0:
            data[at : at + 1] = draw.randbytes(1)
        elif kind == 1:
            data[at:at] = draw.choice(INSERTED)
        elif kind == 2:
            del data[at : at + draw.randrange(1, 20)]
        else:
            del data[max(1, at) :]
    return bytes(data)


def test_spoilt_byte_streams_are_answered_below_500(
    server: Listening, pytestconfig: pytest.Config, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(9)  # noqa: S311 - the same every time
    for _ in range(10_000 if pytestconfig.getoption("--long") else 400):
        data, answer = spoilt(draw), b""
        with closing(server.connect()) as connection, suppress(ConnectionError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
        assert b"HTTP/1.1 5" not in answer, (data, answer)
    assert server.ask("GET", "/health")[0] == 200
    assert "Traceback" not in caplog.text


def test_readers_cannot_fill_the_threads_of_writers(server: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()
    monkeypatch.setattr("penstock.service.routes.views.decision_log", lambda *_: [hang.wait(20)])
    statuses: list[int] = []

    def read() -> None:
        statuses.append(server.ask("GET", "/v1/views/decisions", READER)[0])

    readers = [threading.Thread(target=read) for _ in range(80)]
    for reader in readers:
        reader.start()
    try:
        until(lambda: 429 in statuses)
        status, seconds = server.ask("PATCH", "/v1/pipelines/a", body={"priority": 1})
        assert (status, seconds < 5) == (200, True)
    finally:
        hang.set()
        for reader in readers:
            reader.join()
    assert set(statuses) == {200, 429}


LONG = "/v1/views/what-if?pipeline=a&nodes=3000&seconds=1500&rate="


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those that are started from now on."""
    made: list[Any] = []
    original = subprocess.Popen

    def start(*words: Any, **options: Any) -> Any:
        made.append(original(*words, **options))
        return made[-1]

    monkeypatch.setattr("penstock.service.what_if.subprocess.Popen", start)
    return made


def test_what_if_takes_no_threads_and_ends_with_its_client(server: Listening, processes: list[Any]) -> None:
    asked = [server.connect() for _ in range(20)]
    for number, connection in enumerate(asked):
        path = f"{LONG}{10_000 + number}"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer may-read\r\n\r\n".encode())
    # four are kept, of which one is computed; the others are told at once
    until(lambda: len(readable(asked)) == 16)
    assert {connection.recv(12) for connection in readable(asked)} == {b"HTTP/1.1 429"}
    for _ in range(3):
        assert server.ask("PATCH", "/v1/pipelines/a", body={"priority": 1})[0] == 200
    for connection in asked:
        connection.close()
    until(lambda: processes[0].returncode == -signal.SIGKILL)
    assert server.ask("GET", "/v1/views/what-if?pipeline=a&seconds=10", READER)[0] == 200
    assert {process.returncode for process in processes[:-1]} == {-signal.SIGKILL}, "nothing is computed for nobody"


def readable(connections: list[socket.socket]) -> list[socket.socket]:
    return select.select(connections, [], [], 0)[0]


def test_too_large_a_what_if_is_refused_before_it_is_computed(server: Listening) -> None:
    for name in "bcdefgh":
        server.served.call("POST", "/v1/pipelines", {"name": name, "pipeline": "linear", "desired": 1}, 201)
    error = server.served.call("GET", "/v1/views/what-if?pipeline=a&nodes=10000&seconds=1800", None, 400)["error"]
    assert error == (
        "seconds: 10000 nodes for 1800 s with 8 pipelines are too much to simulate; "
        "ask for at most 250 s, or for fewer nodes"
    )


def test_what_if_that_takes_too_long_is_ended(served_alone: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.service.what_if.MAX_SECONDS", 0.05)
    error = served_alone.call("GET", "/v1/views/what-if?pipeline=a", None, 400)["error"]
    assert error.startswith("seconds: this took more than 0.05 s; ask for fewer seconds")


@pytest.fixture
def served_alone(tmp_path: Path) -> Iterator[Served]:
    served = serve(tmp_path, nodes=4)
    served.call("POST", "/v1/pipelines", {"name": "a", "pipeline": "linear", "desired": 2}, 201)
    yield served
    served.close()


def test_streams_are_limited_by_token_and_end_with_their_session(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.service.routes.history.MAX_WATCHERS", 3)
    watch = "GET /v1/watch HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n\r\n"
    with ExitStack() as held:
        streams = [
            held.enter_context(closing(server.connect(watch.format("Authorization: Bearer may-read").encode())))
            for _ in range(3)
        ]
        for stream in streams:
            assert stream.recv(12) == b"HTTP/1.1 200"
        assert server.ask("GET", "/v1/watch", READER)[0] == 429
        login = http.client.HTTPConnection("127.0.0.1", server.port)
        held.enter_context(closing(login))
        login.request("POST", "/login", json.dumps({"token": "may-do-all"}))
        answer = login.getresponse()
        answer.read()
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        login.close()
        stream = held.enter_context(closing(server.connect(watch.format(f"Cookie: {cookie}").encode())))
        assert stream.recv(12) == b"HTTP/1.1 200"
        origin = f"http://127.0.0.1:{server.port}"
        assert server.ask("POST", "/logout", {"Cookie": cookie, "Origin": origin})[0] == 200
        received = b""
        while not received.endswith(b"\r\n0\r\n\r\n"):
            # the last chunk: the stream has ended, as streams do
            received += stream.recv(65536)


def test_a_message_that_repeats_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_log, "WINDOW_SECONDS", 0.2)
    quieter = RepeatFilter()

    def passes(text: str) -> str | None:
        record = logging.makeLogRecord({"name": "x", "msg": "%s", "args": (text,)})
        return record.getMessage() if quieter.filter(record) else None

    lines = [passes(f"no room for {number}") for number in range(100)]
    assert [line for line in lines if line] == [f"no room for {number}" for number in range(10)]
    assert passes("something else") == "something else"
    pause(0.25)
    assert passes("no room for 7") == "no room for 7 (90 more were left out)"


def test_the_log_is_cut_whoever_writes_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_log, "MAX_LOG_BYTES", 10_000)
    path = tmp_path / "controller.log"
    with path.open("a") as stream:
        handler = BoundedHandler(path)
        handler.setStream(stream)
        for _ in range(20):
            stream.write("from elsewhere " * 100)
            handler.emit(logging.makeLogRecord({"msg": "from us"}))
    assert path.stat().st_size < 12_000
    older = tmp_path / "controller.log.1"
    assert older.stat().st_size < 14_000
    assert older.stat().st_mode & 0o777 == 0o600


def test_two_thousand_half_open_connections_stop_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that was started with a limit of 1,024 files, by one whose limit is higher."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this machine allows too few open files")
    # a file in the current folder is not taken for the library of its name
    monkeypatch.chdir(tmp_path)
    (tmp_path / "uvicorn.py").write_text("open('planted', 'w')\n", "utf-8")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        up = penstock.up(simulated=True, nodes=2, folder=tmp_path)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
        with ExitStack() as held, penstock.connect(folder=tmp_path) as client:
            held.callback(penstock.down, folder=tmp_path)
            host, _, port = up.url.removeprefix("http://").partition(":")
            for _ in range(2000):
                half = held.enter_context(closing(socket.create_connection((host, int(port)), timeout=10)))
                half.sendall(HALF)
            watch = Stopwatch()
            client.submit("a", "linear", desired=1)
            assert client.health()["status"] == "ok"
            # half a second on a machine that does nothing else
            assert watch.seconds() < 5
            assert (tmp_path / "controller" / "controller.log").stat().st_size < 10_000
            assert not (tmp_path / "planted").exists()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_what_if_process_dies_and_the_next_is_answered(served_alone: Served, processes: list[Any]) -> None:
    path = "/v1/views/what-if?pipeline=a&seconds=10"
    served_alone.call("GET", path, None, 200)
    served_alone.call("GET", path, None, 200)
    assert len(processes) == 1, "one process answers both"
    processes[0].kill()
    assert served_alone.http.get(path).status_code in {200, 400}
    served_alone.call("GET", path, None, 200)
