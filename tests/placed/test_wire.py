"""Handshake, accept loop and frames of a run's connections, as a stranger without the secret meets them."""

from __future__ import annotations

import errno
import os
import queue
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.base.clock import Stopwatch, pause
from penstock.engines.placed import accept_loop, wire
from penstock.engines.placed.accept_loop import AcceptLoop
from penstock.engines.placed.wire import read_identity

CREDENTIALS = wire.Credentials(b"s" * 32)
HELLO = b"it is me"


class Door:
    """A listening socket, its accept loop, and the greetings of those who were admitted."""

    def __init__(self, server: Any = None) -> None:
        self.server = server or wire.listen("127.0.0.1")
        self.address = self.server.getsockname()[:2]
        self.admitted: queue.SimpleQueue[tuple[wire.Connection, bytes]] = queue.SimpleQueue()
        self.loop = AcceptLoop(self.server, CREDENTIALS, lambda made, hello: self.admitted.put((made, hello)))
        self.loop.start()

    def let_in(self) -> wire.Connection:
        """Connect as a peer with the secret; return the connection of the accepting side."""
        caller = wire.connect(self.address, CREDENTIALS, HELLO)
        made, hello = self.admitted.get(timeout=5)
        assert hello == HELLO
        wire.close(caller)
        return made


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    wire.close(made.server)
    made.loop.join(5)
    assert not made.loop.is_alive()


def ends(stranger: socket.socket, seconds: float) -> float:
    """Seconds until the other end closes the connection."""
    watch = Stopwatch()
    stranger.settimeout(seconds)
    with suppress(ConnectionError):
        while stranger.recv(4096):
            pass
    return watch.seconds()


def test_a_long_greeting_is_refused_before_it_is_read(door: Door) -> None:
    with socket.create_connection(door.address) as stranger:
        stranger.sendall(os.urandom(64) + struct.pack("<I", wire.MAX_GREETING + 1))
        assert ends(stranger, 3.0) < 2.0
    assert wire.MAX_GREETING == 64 * 1024
    wire.close(door.let_in())


@pytest.mark.parametrize("side", ["called", "caller"])
def test_a_handshake_has_one_deadline_if_bytes_drip(monkeypatch: pytest.MonkeyPatch, side: str, door: Door) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE_SECONDS", 0.5)

    def drip(stranger: socket.socket) -> None:
        with suppress(OSError):
            for _ in range(40):
                stranger.sendall(b"x")
                pause(0.1)

    watch = Stopwatch()
    if side == "called":
        with socket.create_connection(door.address) as stranger:
            threading.Thread(target=drip, args=(stranger,), daemon=True).start()
            ends(stranger, 3.0)
    else:
        with wire.listen("127.0.0.1") as impostor:

            def answer() -> None:
                with impostor.accept()[0] as caller:
                    drip(caller)

            threading.Thread(target=answer, daemon=True).start()
            with pytest.raises(OSError, match=r"no handshake within 0\.5 s|timed out"):
                wire.connect(impostor.getsockname()[:2], CREDENTIALS, HELLO)
    assert watch.seconds() < 1.5


def test_a_dripped_tls_handshake_ends_in_time(monkeypatch: pytest.MonkeyPatch, identities: dict[str, str]) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE_SECONDS", 0.5)
    ours, theirs = socket.socketpair()
    # a TLS record that announces 16,000 bytes
    theirs.sendall(b"\x16\x03\x01\x3e\x80")

    def drip() -> None:
        with suppress(OSError):
            for _ in range(40):
                theirs.sendall(b"x")
                pause(0.1)

    threading.Thread(target=drip, daemon=True).start()
    watch = Stopwatch()
    monkeypatch.setattr(wire, "_prepare", lambda _made: None)  # no TCP here
    with pytest.raises(OSError, match=r"handshake|timed out"):
        wire.admit(ours, wire.Credentials(b"s" * 32, identities["mine"]))
    assert watch.seconds() < 1.5
    theirs.close()


def test_at_most_64_unproven_connections_are_held_and_a_peer_gets_in_beside_them(door: Door) -> None:
    before = threading.active_count()
    with ExitStack() as held:
        strangers = [held.enter_context(socket.create_connection(door.address)) for _ in range(200)]
        wire.close(door.let_in())
        # the oldest are closed, and so many at once that those left are few
        assert ends(strangers[0], 3.0) < 2.0
        watch = Stopwatch()
        while threading.active_count() - before > accept_loop.MAX_UNPROVEN and watch.seconds() < 3:
            pause(0.01)
        assert threading.active_count() - before <= accept_loop.MAX_UNPROVEN


class Stumbling:
    """A listening socket whose accept() fails a few times."""

    def __init__(self, *numbers: int) -> None:
        self._server = wire.listen("127.0.0.1")
        self.left = list(numbers)

    def accept(self) -> Any:
        if self.left:
            raise OSError(self.left.pop(0), "stumbled")
        return self._server.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOBUFS, errno.EPERM])
def test_the_accept_loop_continues_after_an_error(number: int) -> None:
    server = Stumbling(number, number)
    door = Door(server)
    wire.close(door.let_in())
    assert server.left == []
    wire.close(door.server)
    door.loop.join(5)
    assert not door.loop.is_alive()


def test_bundles_and_conductor_share_the_accept_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from local_processes import code_of, conductor, laid_out, line
    from test_engine import A, same, turn_until

    from penstock.dataflow.logic import Logic
    from penstock.engines.placed.flow.states import FlowState
    from penstock.engines.placed.launchers import LocalLauncher

    monkeypatch.setattr(wire, "HANDSHAKE_SECONDS", 1.0)
    plan = laid_out(code_of(line(Logic(same)), tmp_path), {"src": {A: 1}, "op0": {A: 1}, "out": {A: 1}})
    run = conductor(tmp_path, plan, 100.0, launcher := LocalLauncher())
    with ExitStack() as held:
        try:
            for _ in range(100):  # silent strangers at the conductor, before any bundle comes
                held.enter_context(socket.create_connection(run.address))
            turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        finally:
            run.close()
            launcher.close()


# Frames.


Between = Callable[[socket.socket, socket.socket], None]


@contextmanager
def linked(between: Between | None = None) -> Iterator[tuple[wire.Connection, wire.Connection]]:
    """Both ends of a connection. A third party relays the handshake, and then does `between` (caller, called)."""
    with ExitStack() as opened:
        door = Door()
        opened.callback(wire.close, door.server)
        address = door.address
        if between is not None:
            relay = opened.enter_context(wire.listen("127.0.0.1"))
            address = relay.getsockname()[:2]
            thread = threading.Thread(target=relay_handshake, args=(relay, door.address, between))
            opened.callback(thread.join)
            thread.start()
        caller = wire.connect(address, CREDENTIALS, HELLO)
        opened.callback(wire.close, caller)
        called, _ = door.admitted.get(timeout=5)
        opened.callback(wire.close, called)
        yield caller, called


def relay_handshake(relay: socket.socket, address: wire.Address, between: Between) -> None:
    with relay.accept()[0] as caller, socket.create_connection(address) as called:
        caller.sendall(exactly(called, 32))
        called.sendall(exactly(caller, 68 + len(HELLO)))
        caller.sendall(exactly(called, 32))
        with suppress(OSError):
            between(caller, called)


def exactly(source: socket.socket, size: int) -> bytes:
    return bytes(wire.receive_exactly(source, size))  # type: ignore[arg-type]


def send_three(made: wire.Connection) -> None:
    for text in (b"one", b"two", b"six"):
        wire.send_frame(made, 0, text, b"body")


SIZE = struct.calcsize("<BIQ") + 3 + 4 + 16


def changed(frame: bytes) -> bytes:
    return frame.replace(b"body", b"dark")


@pytest.mark.parametrize(
    ("what", "passed"),
    [
        ("nothing", 3),
        ("change", 1),
        ("repeat", 2),
        ("drop", 1),
        ("reorder", 1),
        ("reflect", 0),
    ],
)
def test_who_relays_a_handshake_cannot_change_what_follows(what: str, passed: int) -> None:
    def between(caller: socket.socket, called: socket.socket) -> None:
        one, two, three = (exactly(caller, SIZE) for _ in range(3))
        sent = {
            "nothing": [one, two, three],
            "change": [one, changed(two), three],
            "repeat": [one, two, two],
            "drop": [one, three],
            "reorder": [one, three, two],
            "reflect": [],
        }[what]
        for frame in sent:
            called.sendall(frame)
        if what == "reflect":
            caller.sendall(one)

    with linked(between) as (caller, called):
        send_three(caller)
        got = 0
        with suppress(wire.LinkError):
            while True:
                wire.receive_frame(caller if what == "reflect" else called)
                got += 1
        assert got == passed


def test_markers_and_windows_of_links_are_sealed_too() -> None:
    from penstock.engines.placed.bundle.links import InLink, OutLink

    def between(caller: socket.socket, called: socket.socket) -> None:
        marker = caller.recv(4096)
        called.sendall(marker.replace(struct.pack("<q", 7), struct.pack("<q", 8)))

    with linked(between) as (caller, called):
        OutLink(caller).mark(7)
        with pytest.raises(wire.LinkError, match="did not send"):
            InLink(called).next()
    with linked() as (caller, called):
        out = OutLink(caller)
        called.sendall(struct.pack("<qq", 0, 1 << 40) + bytes(16))
        with pytest.raises(wire.LinkError, match="did not send"):
            out._hear(0)


# TLS.


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`mine` and `other`: certificates that one authority signed, each file with the authority's own behind it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    made = {}
    for name in ("mine", "other"):
        openssl("req", *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")
        file = folder / f"{name}.pem"
        file.write_text("".join((folder / part).read_text() for part in (f"{name}.crt", "ca.crt", f"{name}.key")))
        file.chmod(0o600)
        made[name] = read_identity(file)
    return made


@pytest.mark.parametrize("stranger", ["caller", "called"])
def test_another_certificate_of_the_same_authority_is_refused(identities: dict[str, str], stranger: str) -> None:
    def shake(ours: str, theirs: str) -> list[BaseException]:
        errors: list[BaseException] = []
        with wire.listen("127.0.0.1") as server:

            def admit() -> None:
                try:
                    wire.close(wire.admit(server.accept()[0], wire.Credentials(b"s" * 32, ours))[0])
                except OSError as error:
                    errors.append(error)

            thread = threading.Thread(target=admit)
            thread.start()
            try:
                made = wire.connect(server.getsockname()[:2], wire.Credentials(b"s" * 32, theirs), HELLO)
                with suppress(OSError):
                    wire.receive_exactly(made, 1)
                wire.close(made)
            except OSError as error:
                errors.append(error)
            thread.join()
        return errors

    mine, other = identities["mine"], identities["other"]
    assert shake(mine, mine) == []
    refused = shake(mine, other) if stranger == "caller" else shake(other, mine)
    assert any("another certificate than the run's" in str(error) for error in refused)
