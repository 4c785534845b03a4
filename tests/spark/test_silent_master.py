"""A master that says nothing is given up on, soon; one that answers, or hangs up, is left to Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import penstock
from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError
from penstock.spark.session import cluster as silent_master
from penstock.spark.session.cluster import HTTP_QUESTION, NO_FILE, answering_host, has_answered, spark_question
from penstock.spark.session.hadoop import resource_managers

YARN = "<configuration>{}</configuration>"
PROPERTY = "<property><name>yarn.resourcemanager.{}</name><value>{}</value></property>"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def silent() -> Iterator[int]:
    """A port on which somebody listens and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def dead() -> int:
    """A port on which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def test_the_question_is_a_frame_of_sparks() -> None:
    # eight bytes of length, which count themselves; one of type, four of the length of a name
    asked = spark_question()
    assert int.from_bytes(asked[:8], "big") == len(asked) == 8 + 1 + 4 + len(NO_FILE)
    assert asked[8] == 6
    assert asked[13:] == NO_FILE


@pytest.mark.parametrize("answer", [b"\x00\x00", b""], ids=["answers", "hangs up"])
def test_any_answer_will_do(pair: tuple[socket.socket, socket.socket], answer: bytes) -> None:
    ours, theirs = pair

    def master() -> None:
        theirs.recv(1000)
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_RDWR)

    thread = threading.Thread(target=master)
    thread.start()
    assert has_answered(ours, HTTP_QUESTION, 5.0)
    thread.join()


def test_one_deadline_holds_for_all_addresses(silent: int, dead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_master, "ANSWER_SECONDS", 0.6)
    watch = Stopwatch()
    with pytest.raises(BadInputError, match=r"master 'm': it takes connections, and did not answer within 0.6 s"):
        answering_host("m", [("127.0.0.1", dead), *[("127.0.0.1", silent)] * 3], HTTP_QUESTION)
    assert watch.seconds() < 2
    with pytest.raises(BadInputError, match=r"master 'm': nobody answers there: Connection refused"):
        answering_host("m", [("127.0.0.1", dead)], HTTP_QUESTION)


def test_one_of_several_that_answers_is_enough(silent: int, dead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_master, "ANSWER_SECONDS", 3.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def master() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)

        thread = threading.Thread(target=master)
        thread.start()
        places = [("127.0.0.1", dead), ("127.0.0.1", silent), ("localhost", server.getsockname()[1])]
        assert answering_host("m", places, HTTP_QUESTION) == "localhost"
        thread.join()


@pytest.mark.parametrize(
    ("said", "places"),
    [
        ({}, []),
        ({"hostname": "h"}, [("h", 8032)]),
        ({"hostname": "h", "address": "g:1"}, [("g", 1)]),
        ({"address": "${host}:1"}, []),
        (
            {"ha.enabled": "true", "ha.rm-ids": "a, b", "hostname.a": "h", "address.b": "g:2", "hostname": "no"},
            [("h", 8032), ("g", 2)],
        ),
    ],
)
def test_where_yarn_is(tmp_path: Path, said: dict[str, str], places: list[tuple[str, int]]) -> None:
    assert resource_managers(tmp_path) == []
    text = YARN.format("".join(PROPERTY.format(name, value) for name, value in said.items()))
    (tmp_path / "yarn-site.xml").write_text(text)
    assert resource_managers(tmp_path) == places
    (tmp_path / "yarn-site.xml").write_text("<broken")
    with pytest.raises(BadInputError, match=r"yarn-site.xml: cannot be read"):
        resource_managers(tmp_path)


@pytest.mark.parametrize("listens", [False, True], ids=["nobody listens", "nobody answers"])
def test_the_command_gives_up_within_20_seconds(tmp_path: Path, silent: int, dead: int, *, listens: bool) -> None:
    master = f"spark://127.0.0.1:{silent if listens else dead}"
    own = {"PENSTOCK_RUNS": str(tmp_path / "runs"), "PENSTOCK_STATE": str(tmp_path / "state")}
    watch = Stopwatch()
    process = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "linear", "--rate", "5", "--master", master],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert watch.seconds() < 20
    assert (process.returncode, process.stdout, process.stderr.count("\n")) == (2, "", 1), process.stderr
    why = "it takes connections, and did not answer within 10 s" if listens else "nobody answers there: Conn"
    assert f"master '{master}': {why}" in process.stderr
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize("master", ["k8s://http://127.0.0.1:{}", "k8s://https://127.0.0.1:{}", "yarn"])
def test_masters_of_other_kinds(
    tmp_path: Path, silent: int, dead: int, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(silent_master, "ANSWER_SECONDS", 0.5)
    for port, why in ((dead, "nobody answers there: Connection refused"), (silent, "did not answer within 0.5 s")):
        (tmp_path / "yarn-site.xml").write_text(YARN.format(PROPERTY.format("address", f"127.0.0.1:{port}")))
        with pytest.raises(BadInputError, match=f"master '{master.format(port)}': .*{why}"):
            penstock.run("linear", 5, master=master.format(port))
