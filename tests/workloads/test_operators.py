"""The reference operators on plain tuples, in threads, with the services they need; nothing of it needs Spark."""

from __future__ import annotations

import contextlib
import io
import json
import math
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
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import pytest

from penstock.dataflow.logic import Logic, find_logic
from penstock.errors import BadInputError, PenstockError
from penstock.modelling.library import reference_library
from penstock.workloads import table_database
from penstock.workloads.blob_server import BlobService, Link, content, main, running_blob_server
from penstock.workloads.builtin import builtin_pipeline
from penstock.workloads.operators import (
    azure_blob,
    azure_table,
    batch_file_write,
    parse_xml,
    pi,
    reference_logic,
    services,
    split_words,
)
from penstock.workloads.operators.blob import BLOB_URL, BlobClient
from penstock.workloads.operators.file_write import BATCH, LINE_BYTES, WRITE_FOLDER, BatchWriter
from penstock.workloads.operators.parse_xml import Reader
from penstock.workloads.operators.pi import pi_logic, viete
from penstock.workloads.operators.table import TABLE_DATABASE, TABLE_DELAY
from penstock.workloads.operators.words import LONGEST, SHORTEST, line
from penstock.workloads.table_database import COLUMNS, ensure_database, is_complete

ROWS = 2_000
ALL = reference_logic
AT_ONCE = BlobService(size=1_000, delay_ms=0, connection_mb_s=0, total_mb_s=0)


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the operators need, set in the environment."""
    cache = tmp_path_factory.mktemp("cache")
    with (
        services(reference_logic, blob=AT_ONCE, folder=cache, rows=ROWS) as environment,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in environment.items():
            patch.setenv(name, value)
        yield environment


def run(code: Logic, values: list[int], **more: object) -> list[Any]:
    """What a thread does with its tuples."""
    handle = () if code.open is None else (code.open(),)
    try:
        return [code({"value": value, **more}, *handle) for value in values]
    finally:
        if code.close is not None:
            code.close(*handle)


def columns(code: Logic) -> list[str]:
    assert code.schema is not None
    return [column.split()[0] for column in code.schema.split(", ")]


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# every operator


def test_there_is_code_for_every_reference_model() -> None:
    assert set(reference_logic) == set(reference_library().models)


@pytest.mark.parametrize("name", ALL)
def test_sends_on_the_value_with_what_the_schema_says(name: str, around: dict[str, str]) -> None:
    for sent in run(ALL[name], [0, 7, ROWS, 10**12], something="else"):
        for row in sent if isinstance(sent, list) else [sent]:
            assert list(row) == columns(ALL[name])
    assert find_logic(f"penstock.workloads.operators:{name}") is ALL[name]


@pytest.mark.parametrize("name", ALL)
def test_threads_agree(name: str, around: dict[str, str]) -> None:
    code = ALL[name]
    expected = run(code, list(range(50)))
    with ThreadPoolExecutor(8) as pool:
        for answer in pool.map(lambda _: run(code, list(range(50))), range(8)):
            assert answer == expected


@pytest.mark.parametrize("name", ALL)
def test_travels_to_another_process(name: str, around: dict[str, str]) -> None:
    packed = pytest.importorskip("pyspark.cloudpickle").dumps(ALL[name])
    assert len(packed) < 4_000, "code, not what it works on"
    script = (
        "import pickle, sys\n"
        "code = pickle.load(sys.stdin.buffer)\n"
        "handle = () if code.open is None else (code.open(),)\n"
        "print(code({'value': 3}, *handle))\n"
        "if code.close is not None: code.close(*handle)\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], input=packed, capture_output=True, check=True)
    assert answer.stdout.decode().strip() == str(run(ALL[name], [3])[0])


# computing


def test_pi() -> None:
    # by hand: sqrt(2)/2 = 0.70710678..., and 2 / 0.70710678 = 2.82842712
    assert viete(1) == pytest.approx(2.82842712)
    assert pi({"value": 1})["pi"] == pytest.approx(math.pi, abs=1e-8)
    assert pi_logic(factors=1, evaluations=2)({"value": 1}) == {"value": 1, "pi": viete(1)}


def test_parse_xml() -> None:
    assert Reader().count('<a x="1" y="2"><b/><b z="3">text</b></a>') == (3, 3)
    # by hand: 4 messages of a station with 1 attribute, and 8 readings with 3, each with 2 elements inside
    assert run(parse_xml, [5]) == [{"value": 5, "elements": 4 * (1 + 8 * 3), "attributes": 4 * (1 + 8 * 3)}]


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a>&c;</a>',
        '<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/hostname">]><a>&f;</a>',
        '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a/>',
        "<a><b></a>",
        "",
    ],
)
def test_bad_xml_is_refused_and_the_reader_goes_on(text: str) -> None:
    reader = Reader()
    with pytest.raises(BadInputError):
        reader.count(text)
    assert reader.count("<a/>") == (1, 0)


def test_words() -> None:
    counts: dict[str, int] = {}
    for number in range(2_000):
        words = split_words({"value": number})
        assert " ".join(row["word"] for row in words) == line(number)
        assert SHORTEST <= len(words) <= LONGEST
        for row in words:
            counts[row["word"]] = counts.get(row["word"], 0) + 1
    assert len(counts) > 100
    assert counts["the"] > 10 * min(counts.values())
    assert line(1) != line(2)
    # what word-count says about itself: 9 words a line
    (out,) = builtin_pipeline("word-count").outputs("split")
    assert sum(counts.values()) / 2_000 == pytest.approx(out.selectivity, rel=0.02)


# writing files


def lines(folder: Path) -> list[bytes]:
    return [row for path in sorted(folder.glob("rows-*.txt")) for row in path.read_bytes().splitlines(keepends=True)]


def test_writes_whole_batches_and_the_rest_when_closed(tmp_path: Path) -> None:
    writer = BatchWriter(tmp_path, batch=10)
    numbers = [writer.add(value) for value in range(25)]
    assert numbers == [0] * 10 + [1] * 10 + [2] * 5
    assert len(lines(tmp_path)) == 20
    writer.close()
    assert [int(row) for row in lines(tmp_path)] == list(range(25))
    assert {len(row) for row in lines(tmp_path)} == {LINE_BYTES}


def test_the_operator_writes_to_the_folder_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WRITE_FOLDER, str(tmp_path / "new"))
    sent = run(batch_file_write, list(range(BATCH + 1)))
    assert sent[-1] == {"value": BATCH, "batch": 1}
    assert len(lines(tmp_path / "new")) == BATCH + 1


def test_disk_stays_bounded(tmp_path: Path) -> None:
    for _ in range(3):  # three lives of a thread: the next goes on where the one before ended
        writer = BatchWriter(tmp_path, batch=10, largest_file=5_000)
        for value in range(333):
            writer.add(value)
        writer.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"rows-0.txt", "rows-0.old.txt", "rows-0.lock"}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * (5_000 + 10 * LINE_BYTES)


def test_threads_at_the_same_time_have_files_of_their_own(tmp_path: Path) -> None:
    writers = [BatchWriter(tmp_path) for _ in range(3)]
    assert len({writer.path for writer in writers}) == 3
    for writer in writers:
        writer.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv(WRITE_FOLDER, str(tmp_path / "file"))
    with pytest.raises(BadInputError, match="cannot be written"):
        run(batch_file_write, [1])


# blobs


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


def ask(url: str, request: bytes) -> bytes:
    """The first line of the answer to `request`, byte by byte as given."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline().strip()


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


def answers(url: str) -> bool:
    try:
        return ask(url, b"GET /health HTTP/1.1\r\n\r\n") != b""
    except OSError:
        return False


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


# the table


def test_looks_up_by_key(around: dict[str, str]) -> None:
    first, again = run(azure_table, [3, 3 + ROWS])
    assert len(COLUMNS) == 20
    assert first["row_key"] == again["row_key"] == 3
    assert {**again, "value": 3} == first
    # by hand: 3 * 40503 = 121509 = 4 * 30000 + 1509; 3 * 7919 = 23757 = 47 * 500 + 257
    assert (first["meter"], first["zone"], first["tariff"], first["status"]) == (1509, "zone-257", "day", "ok")


def test_the_table_may_be_slow_like_a_service(around: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TABLE_DELAY, "20")
    assert 0.1 <= seconds(lambda: run(azure_table, list(range(5)))) < 0.4
    for wrong in ("-1", "nan", "soon"):
        monkeypatch.setenv(TABLE_DELAY, wrong)
        with pytest.raises(BadInputError, match=f"{TABLE_DELAY}: expected milliseconds of at least 0, found '{wrong}'"):
            run(azure_table, [1])


def test_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TABLE_DATABASE, str(tmp_path / "none"))
    with pytest.raises(BadInputError, match="no database at"):
        run(azure_table, [1])
    (tmp_path / "none").write_text("not a database, but long enough to be looked at " * 20)
    with pytest.raises(BadInputError, match="is not a table of Penstock's"):
        run(azure_table, [1])
    monkeypatch.delenv(TABLE_DATABASE)
    with pytest.raises(BadInputError, match=f"{TABLE_DATABASE} is not set"):
        run(azure_table, [1])


def test_the_database_is_built_once_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_database, "SLICE", 900)
    heard: list[tuple[int, int]] = []
    path = ensure_database(tmp_path, ROWS, lambda done, all_: heard.append((done, all_)))
    assert heard == [(900, ROWS), (1_800, ROWS), (ROWS, ROWS)]
    built = path.stat().st_mtime_ns
    assert ensure_database(tmp_path, ROWS, lambda *_: pytest.fail("built again")) == path
    assert path.stat().st_mtime_ns == built
    assert ensure_database(tmp_path, ROWS + 1) != path


def test_every_build_is_the_same(tmp_path: Path) -> None:
    one, other = (ensure_database(tmp_path / name, ROWS) for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_a_truncated_database_is_built_again(tmp_path: Path, share: float) -> None:
    path = ensure_database(tmp_path, ROWS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert not is_complete(path, ROWS)
    assert ensure_database(tmp_path, ROWS).read_bytes() == whole


def test_what_a_killed_builder_left_is_removed(tmp_path: Path) -> None:
    path = ensure_database(tmp_path, ROWS)
    path.unlink()
    (tmp_path / f".{path.stem}-abc.sqlite").write_text("half")
    ensure_database(tmp_path, ROWS)
    assert {found.name for found in tmp_path.iterdir()} == {path.name, path.with_suffix(".lock").name}


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(_done: int, _all: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_database(tmp_path, ROWS, fail)
    assert not list(tmp_path.glob("*.sqlite")) + list(tmp_path.glob(".*.sqlite"))


def test_two_who_need_it_at_the_same_time_build_it_once(tmp_path: Path) -> None:
    heard: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: ensure_database(tmp_path, ROWS, lambda done, _: heard.append(done)), range(4)))
    assert len(paths) == 1
    assert heard == [ROWS]


def test_where_the_database_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ensure_database(rows=10).parent == tmp_path / "penstock"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert table_database.default_folder() == tmp_path / "home/.cache/penstock"


def test_a_folder_that_cannot_hold_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInputError, match="cannot be written"):
        ensure_database(tmp_path / "file", ROWS)
    with pytest.raises(BadInputError, match="rows: expected at least 1"):
        ensure_database(tmp_path, 0)


# what they need together


def test_services_start_only_what_is_needed(tmp_path: Path) -> None:
    with services(["pi", "parse_xml", "somebody's own"], folder=tmp_path) as environment:
        assert environment == {}
    with services(["batch_file_write"], folder=tmp_path) as environment:
        written = Path(environment[WRITE_FOLDER])
        assert written.is_dir()
    assert not written.exists()
    assert not list(tmp_path.iterdir())


def test_services_hand_on_what_is_given(tmp_path: Path) -> None:
    given = {BLOB_URL: "http://elsewhere", TABLE_DATABASE: "/elsewhere", WRITE_FOLDER: "/elsewhere", "HOME": "/"}
    with services(reference_logic, folder=tmp_path, table_delay_ms=5, given=given) as environment:
        assert environment == {name: value for name, value in given.items() if name != "HOME"} | {TABLE_DELAY: "5"}
    assert not list(tmp_path.iterdir())


def test_services_report_progress_and_end(tmp_path: Path) -> None:
    heard = io.StringIO()
    with services(
        ["azure_table", "azure_blob"],
        blob=AT_ONCE,
        folder=tmp_path,
        rows=10,
        progress=lambda done, all_: print(done, all_, file=heard),
    ) as environment:
        assert is_complete(Path(environment[TABLE_DATABASE]), 10)
        assert answers(environment[BLOB_URL])
    assert heard.getvalue() == "10 10\n"
    assert not answers(environment[BLOB_URL])
