"""A master that says nothing is given up on; one that answers, or hangs up, is left to Spark."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.errors import BadInputError
from penstock.spark.session import silent_master
from penstock.spark.session.silent_master import NO_FILE, expect_an_answer, question


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_the_question_is_a_frame_of_sparks() -> None:
    # eight bytes of length, which count themselves; one of type, four of the length of a name
    asked = question()
    assert int.from_bytes(asked[:8], "big") == len(asked) == 8 + 1 + 4 + len(NO_FILE)
    assert asked[8] == 6
    assert asked[13:] == NO_FILE


def test_silence_is_one_line(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_master, "SILENT_SECONDS", 0.2)
    silence = r"master 'spark://h:1': it takes connections, and did not answer within 0.2 s"
    with pytest.raises(BadInputError, match=silence):
        expect_an_answer("spark://h:1", pair[0])


@pytest.mark.parametrize("answer", [b"\x00\x00", b""], ids=["answers", "hangs up"])
def test_any_answer_will_do(pair: tuple[socket.socket, socket.socket], answer: bytes) -> None:
    ours, theirs = pair

    def master() -> None:
        theirs.recv(1000)
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_RDWR)

    thread = threading.Thread(target=master)
    thread.start()
    expect_an_answer("spark://h:1", ours)
    thread.join()
