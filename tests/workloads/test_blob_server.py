"""The blob server: what it answers, how slow it pretends to be, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit
from zlib import crc32

import pytest

from penstock.base.errors import BadInputError, PenstockError
from penstock.workloads.blob_server import BlobService, Link, content, main, running_blob_server
from penstock.workloads.operators import (
    azure_blob,
)
from penstock.workloads.operators.azure import BLOB_URL, BlobClient
from workload_builders import AT_ONCE, answers, ask, run, seconds


def test_downloads_what_the_server_has(around: dict[str, str]) -> None:
    blob = content(AT_ONCE.size)
    assert run(azure_blob, [1, 2]) == [{"value": v, "size": len(blob), "checksum": crc32(blob)} for v in (1, 2)]


def test_the_connection_is_kept(around: dict[str, str]) -> None:
    client = BlobClient(around[BLOB_URL])
    client.download("a")
    first = client._connection.sock
    client.download("b/c ü")
    assert client._connection.sock is first
    client.close()


def test_a_connection_the_server_closed_is_made_again(around: dict[str, str]) -> None:
    client = BlobClient(around[BLOB_URL])
    client.download("a")
    client._connection.sock.shutdown(socket.SHUT_RDWR)
    assert len(client.download("b")) == AT_ONCE.size
    client.close()


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv(BLOB_URL, url)
    with pytest.raises(PenstockError, match=f"no blob from {url} \\({BLOB_URL}\\): Connection refused"):
        run(azure_blob, [1])
    monkeypatch.setenv(BLOB_URL, "ftp://somewhere")
    with pytest.raises(BadInputError, match="expected http://host:port"):
        run(azure_blob, [1])
    monkeypatch.delenv(BLOB_URL)
    with pytest.raises(BadInputError, match=f"{BLOB_URL} is not set"):
        run(azure_blob, [1])


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /blobs/1 HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /blobs/1 HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /" + b"x" * 20_000, b"HTTP/1.1 431 Request Header Fields Too Large"),
    ],
)
def test_requests(request_: bytes, answer: bytes, around: dict[str, str]) -> None:
    assert ask(around[BLOB_URL], request_) == answer


def download(url: str, times: int, threads: int = 1) -> None:
    def work(_: int) -> None:
        client = BlobClient(url)
        for number in range(times):
            client.download(str(number))
        client.close()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def test_a_link_carries_one_piece_after_the_other() -> None:
    link = Link(100.0)
    assert link.carry(50, 10.0) == 10.5
    assert link.carry(50, 10.0) == 11.0  # waited for the first
    assert link.carry(50, 20.0) == 20.5  # the time in between is gone
    assert Link(0).carry(10**9, 1.0) == 1.0


def test_delay() -> None:
    with running_blob_server(BlobService(size=10, delay_ms=50, connection_mb_s=0, total_mb_s=0)) as url:
        assert 0.25 <= seconds(lambda: download(url, 5)) < 0.6
        # waiting for one does not hold up another
        assert 0.25 <= seconds(lambda: download(url, 5, threads=10)) < 0.6


def test_bandwidth_of_a_connection() -> None:
    with running_blob_server(BlobService(size=100_000, delay_ms=0, connection_mb_s=1, total_mb_s=0)) as url:
        # by hand: 3 blobs of 0.1 MB at 1 MB/s take 0.3 s, on one connection or on each of four
        assert 0.28 <= seconds(lambda: download(url, 3)) < 0.6
        assert 0.28 <= seconds(lambda: download(url, 3, threads=4)) < 0.7


def test_bandwidth_in_total() -> None:
    with running_blob_server(BlobService(size=100_000, delay_ms=0, connection_mb_s=2, total_mb_s=4)) as url:
        # by hand: 8 connections with 2 blobs of 0.1 MB are 1.6 MB at 4 MB/s; one alone is held to 2 MB/s
        assert 0.38 <= seconds(lambda: download(url, 2, threads=8)) < 0.8
        assert 0.09 <= seconds(lambda: download(url, 2)) < 0.4


def test_connections_share_the_total_evenly() -> None:
    with running_blob_server(BlobService(size=100_000, delay_ms=0, connection_mb_s=0, total_mb_s=2)) as url:
        with ThreadPoolExecutor(4) as pool:
            times = list(pool.map(lambda _: seconds(lambda: download(url, 2)), range(4)))
        assert max(times) < 1.5 * min(times)


def test_a_slow_reader_gets_all_of_it() -> None:
    size = 20_000_000  # more than the system's buffers hold
    with running_blob_server(BlobService(size=size, delay_ms=0, connection_mb_s=0, total_mb_s=200)) as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
            connection.sendall(b"GET /blobs/1 HTTP/1.1\r\n\r\n")
            threading.Event().wait(0.3)  # the server's buffers fill up meanwhile
            answer = connection.makefile("rb")
            while answer.readline().strip():
                pass
            assert crc32(answer.read(size)) == crc32(content(size))


def test_keeps_up_with_tiny_blobs(around: dict[str, str]) -> None:
    # asked for without waiting for answers, so that the client's own work does not count
    request, times = b"GET /blobs/1 HTTP/1.1\r\n\r\n", 200
    parts = urlsplit(around[BLOB_URL])

    def work() -> None:
        with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
            answers = connection.makefile("rb")
            for _ in range(5):
                connection.sendall(request * times)
                for _ in range(times):
                    while answers.readline().strip():
                        pass
                    assert len(answers.read(AT_ONCE.size)) == AT_ONCE.size

    assert 5 * times / seconds(work) > 1_000  # several thousand; a busy machine is not a failure


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # ended, but nobody has asked for its exit code yet


def wait_until(happened: Callable[[], bool], limit: float = 5.0) -> None:
    started = time.perf_counter()
    while not happened():
        assert time.perf_counter() - started < limit
        time.sleep(0.02)


def test_the_server_ends_with_its_block() -> None:
    with running_blob_server(AT_ONCE) as url:
        assert answers(url)
    assert not answers(url)


def test_the_server_ends_when_the_block_fails() -> None:
    urls: list[str] = []

    def fail() -> None:
        with running_blob_server(AT_ONCE) as url:
            urls.append(url)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not answers(urls[0])


@contextlib.contextmanager
def starter() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that started a server, in a group of its own, and the server's address."""
    script = (
        "from penstock.workloads.blob_server import running_blob_server\n"
        "with running_blob_server() as url:\n"
        "    try:\n"
        "        print(url, flush=True)\n"
        "        input()\n"
        "    except KeyboardInterrupt:\n"
        "        print('draining', flush=True)\n"
        "    input()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().decode().strip()


def test_the_server_ends_with_its_parent() -> None:
    with starter() as (parent, url):
        assert answers(url)
        server = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0])
        assert is_alive(server)
        parent.kill()
        parent.wait()
        wait_until(lambda: not answers(url))
        wait_until(lambda: not is_alive(server))


def test_an_interrupt_is_for_the_parent_which_may_still_need_blobs() -> None:
    with starter() as (parent, url):
        os.killpg(parent.pid, signal.SIGINT)  # what Ctrl-C in a terminal does
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"draining\n"
        assert answers(url)
    assert not answers(url)


def test_a_server_that_cannot_start(capsys: pytest.CaptureFixture[str], around: dict[str, str]) -> None:
    assert main(["--size", "-1"]) == 2
    assert capsys.readouterr().err == "blob server: size: expected a number of at least 0, found -1\n"
    assert main(["--port", str(urlsplit(around[BLOB_URL]).port)]) == 2
    assert "in use" in capsys.readouterr().err


def test_the_server_says_its_port_and_ends_with_its_input() -> None:
    command = [sys.executable, "-m", "penstock.workloads.blob_server"]
    answer = subprocess.run(command, input=b"", capture_output=True, check=True, timeout=10)
    assert json.loads(answer.stdout)["port"] > 0
    assert answer.stderr == b""
