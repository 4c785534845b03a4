"""The connections of a run: who is let in, with TLS and without."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from local_processes import code_of, conductor, laid_out, line
from test_engine import A, B, C, check, launcher, same, turn_for, turn_until, wait

from penstock.base.errors import BadInputError
from penstock.dataflow.logic import Logic
from penstock.engines.placed import wire
from penstock.engines.placed.flow.states import FlowState
from penstock.engines.placed.launchers import LocalLauncher
from penstock.engines.placed.wire import read_identity

assert launcher  # a fixture

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here to make a certificate")

SECRET = b"s" * 32


def make_identity(folder: Path, name: str = "run.pem") -> Path:
    """A certificate that vouches for itself, and its key, in one file."""
    key, certificate, both = folder / "key.pem", folder / "cert.pem", folder / name
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=penstock-run"]
    subprocess.run(["openssl", *words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    both.write_text(certificate.read_text() + key.read_text())
    both.chmod(0o600)
    return both


def greet(server: wire.Credentials, client: wire.Credentials) -> tuple[Any, BaseException | None, BaseException | None]:
    """What is heard of the client, and what went wrong at either end."""
    listening = wire.listen("127.0.0.1")
    heard: list[Any] = []
    errors: list[BaseException] = []

    def admit() -> None:
        caller, _ = listening.accept()
        try:
            made, hello = wire.admit(caller, server)
            heard.append(hello)
            wire.send_frame(made, 1, b"text", bytes(3_000_000))
            assert wire.receive_frame(made)[1] == b"thanks"
            wire.close(made)
        except (OSError, ValueError) as error:
            errors.append(error)

    thread = threading.Thread(target=admit)
    thread.start()
    failed: BaseException | None = None
    try:
        made = wire.connect(listening.getsockname()[:2], client, b"it is me")
        kind, text, body = wire.receive_frame(made)
        assert (kind, text, len(body)) == (1, b"text", 3_000_000)
        wire.send_frame(made, 2, b"thanks")
        with suppress(OSError):  # until the other end has read it
            wire.receive_exactly(made, 1)
        wire.close(made)
    except OSError as error:
        failed = error
    thread.join()
    listening.close()
    return (heard[0] if heard else None), failed, (errors[0] if errors else None)


def test_only_who_has_the_certificate_and_the_secret_is_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # who speaks without TLS says nothing the other end understands: both wait for as long as this
    monkeypatch.setattr(wire, "HANDSHAKE_SECONDS", 1.0)
    pem, other = (read_identity(make_identity(tmp_path, name)) for name in ("run.pem", "other.pem"))
    both = wire.Credentials(SECRET, pem)
    assert greet(both, both) == (b"it is me", None, None)
    for stranger in (
        wire.Credentials(SECRET, other),
        wire.Credentials(b"x" * 32, pem),
        wire.Credentials(SECRET),
        wire.Credentials(b"x" * 32),
    ):
        hello, failed, refused = greet(both, stranger)
        assert hello is None
        assert failed is not None
        assert isinstance(refused, OSError)
    assert pem not in repr(both)


def test_nothing_of_what_is_said_can_be_read_on_the_way(tmp_path: Path) -> None:
    pem = read_identity(make_identity(tmp_path))
    listening, seen = wire.listen("127.0.0.1"), bytearray()
    behind = wire.listen("127.0.0.1")

    def pass_on() -> None:
        """Somebody between the two, who reads everything."""
        caller, _ = listening.accept()
        called = socket.create_connection(behind.getsockname())

        def copy(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    seen.extend(data)
                    target.sendall(data)
            wire.close(target)

        back = threading.Thread(target=copy, args=(called, caller))
        back.start()
        copy(caller, called)
        back.join()

    def admit() -> None:
        made, _ = wire.admit(behind.accept()[0], wire.Credentials(SECRET, pem))
        wire.send_frame(made, 1, b"a very plain text")
        with suppress(OSError):
            wire.receive_exactly(made, 1)
        wire.close(made)

    threads = [threading.Thread(target=work) for work in (pass_on, admit)]
    for thread in threads:
        thread.start()
    made = wire.connect(listening.getsockname()[:2], wire.Credentials(SECRET, pem), b"somebody we know")
    assert wire.receive_frame(made)[1] == b"a very plain text"
    wire.close(made)
    for thread in threads:
        thread.join()
    for server in (listening, behind):
        server.close()
    assert len(seen) > 500
    assert b"plain text" not in seen
    assert b"somebody we know" not in seen


def test_a_key_that_others_may_read_and_a_file_that_holds_none_are_refused(tmp_path: Path) -> None:
    path = make_identity(tmp_path)
    path.chmod(0o640)
    with pytest.raises(BadInputError, match="chmod 600"):
        read_identity(path)
    (tmp_path / "no.pem").write_text("nothing")
    (tmp_path / "no.pem").chmod(0o600)
    with pytest.raises(BadInputError, match=r"no\.pem: expected a certificate and its private key"):
        read_identity(tmp_path / "no.pem")


def test_a_run_by_tls_whose_checkpoint_is_under_a_uri(tmp_path: Path, launcher: LocalLauncher) -> None:
    identity = read_identity(make_identity(tmp_path))
    code = code_of(line(Logic(same)), tmp_path)
    plan = laid_out(code, {"src": {A: 1}, "op0": {A: 1, B: 1}, "out": {C: 1}})
    place = f"file://{tmp_path}/checkpoint"
    run = conductor(tmp_path, plan, 500.0, launcher, place=place, identity=identity)
    try:
        turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        turn_for(run, 0.6)
        launcher.processes["op0@n1/1"].kill()
        turn_until(run, lambda: run.run.commit.epoch > 5 and run.run.state is FlowState.FLOWING)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    assert check(run, tmp_path) > 300
