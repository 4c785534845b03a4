"""A blob store on this machine that is as slow as one in a cloud: a delay, a bandwidth per connection and per client.

    python -m penstock.workloads.blob_server --size 2000000 --delay-ms 100 --connection-mb-s 5 --total-mb-s 60

answers GET /blobs/NAME on 127.0.0.1, every name with the same content, and GET /health at once. It prints one line of
JSON with its port, and ends when its standard input closes: whoever started it need not live long enough to end it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import math
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from penstock.base.errors import BadInputError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOST = "127.0.0.1"
LONGEST_HEAD = 16 * 1024
LARGEST_PIECE = 64 * 1024
SMALLEST_PIECE = 512
PIECE_SECONDS = 0.02
"""A piece passes the slowest link in about this time, so that connections take turns smoothly."""

GRACE_SECONDS = 5.0
CLIENT_HEADER = b"x-client:"
MOST_CLIENTS = 1000


@dataclass(frozen=True, slots=True)
class BlobService:
    """What the store offers. By default one connection gets 2 blobs/s and all of a client 30/s, as published for Azure:
    a machine's link to the store is what is limited. A client is who says the same in the header X-Client; who says
    nothing belongs to one and the same."""

    size: int = 2_000_000
    """Bytes of a blob."""
    delay_ms: float = 100.0
    """From the request to the first byte."""
    connection_mb_s: float = 5.0
    """10^6 bytes per second on one connection; 0: no limit."""
    total_mb_s: float = 60.0
    """The same for all connections of a client together."""

    def __post_init__(self) -> None:
        for name in ("size", "delay_ms", "connection_mb_s", "total_mb_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInputError(f"{name}: expected a number of at least 0, found {getattr(self, name)}")

    @property
    def piece(self) -> int:
        limits = [limit * 1e6 for limit in (self.connection_mb_s, self.total_mb_s) if limit]
        if not limits:
            return max(1, self.size)
        return max(SMALLEST_PIECE, min(LARGEST_PIECE, int(min(limits) * PIECE_SECONDS)))


class Link:
    """Carries one piece after the other at `rate` bytes/s; at any speed if that is 0."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = 0.0

    def carry(self, size: int, now: float) -> float:
        """When a piece handed over at `now` is through."""
        if not self._rate:
            return now
        self._free = max(self._free, now) + size / self._rate
        return self._free


class Clients:
    """The link of every client."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._links: dict[bytes, Link] = {}

    def link(self, client: bytes) -> Link:
        if client not in self._links:
            if len(self._links) >= MOST_CLIENTS:
                self._links.pop(next(iter(self._links)))
            self._links[client] = Link(self._rate)
        return self._links[client]


class _Connection(asyncio.Protocol):
    """One client: reads a request, waits, sends the blob piece by piece when the links would have let it through."""

    def __init__(self, service: BlobService, blob: bytes, clients: Clients) -> None:
        self._service = service
        self._blob = memoryview(blob)
        self._clients = clients
        self._total = clients.link(b"")
        self._own = Link(service.connection_mb_s * 1e6)
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._busy = self._paused = False
        self._sent = self._ready = 0
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > LONGEST_HEAD:
            self._refuse("431 Request Header Fields Too Large")
        elif not self._busy:
            self._next_request()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._busy and self._timer is None:
            # the client was the slow one: time it took is not made up for
            self._due = max(self._due, self._loop.time())
            self._send()

    def _next_request(self) -> None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        lines = bytes(self._received[:end]).split(b"\r\n")
        words = lines[0].split(b" ")
        del self._received[: end + 4]
        clients = [line.partition(b":")[2].strip() for line in lines[1:] if line.lower().startswith(CLIENT_HEADER)]
        self._total = self._clients.link(clients[0] if clients else b"")
        if len(words) != 3:
            self._refuse("400 Bad Request")
        elif words[0] != b"GET":
            self._refuse("405 Method Not Allowed")
        elif words[1] == b"/health":
            self._transport.write(_head("200 OK", 0))
        elif not words[1].startswith(b"/blobs/"):
            self._transport.write(_head("404 Not Found", 0))
        else:
            self._busy = True
            self._sent = self._ready = 0
            self._due = self._loop.time() + self._service.delay_ms / 1000
            self._timer = self._loop.call_at(self._due, self._begin)

    def _refuse(self, status: str) -> None:
        self._transport.write(_head(status, 0, "Connection: close\r\n"))
        self._transport.close()

    def _begin(self) -> None:
        self._timer = None
        head = _head("200 OK", len(self._blob))
        piece = self._blob[: self._service.piece]
        if len(piece) == len(self._blob) and self._pass(len(piece)) <= self._loop.time():
            # one packet instead of two for a blob that nothing holds up
            self._transport.write(head + piece)
            self._end()
            return
        self._transport.write(head)
        self._send()

    def _pass(self, size: int) -> float:
        """Hands the next `size` bytes to both links and says when they are through.

        Counted from when the last piece was due, not from when a late timer sent it, so that lateness does not add up.
        """
        self._ready += size
        self._due = max(self._own.carry(size, self._due), self._total.carry(size, self._due))
        return self._due

    def _send(self) -> None:
        self._timer = None
        while not self._paused and not self._transport.is_closing():
            if self._sent == self._ready:
                if self._sent == len(self._blob):
                    self._end()
                    return
                self._pass(min(self._service.piece, len(self._blob) - self._sent))
            if self._due > self._loop.time():
                self._timer = self._loop.call_at(self._due, self._send)
                return
            self._transport.write(self._blob[self._sent : self._ready])
            self._sent = self._ready

    def _end(self) -> None:
        self._busy = False
        if self._received:
            self._next_request()


def _head(status: str, size: int, more: str = "") -> bytes:
    kind = "Content-Type: application/octet-stream\r\n"
    return f"HTTP/1.1 {status}\r\n{kind}{more}Content-Length: {size}\r\n\r\n".encode("ascii")


def content(size: int) -> bytes:
    """What every blob holds: the 256 bytes in a row, again and again."""
    return (bytes(range(256)) * (size // 256 + 1))[:size]


async def serve(service: BlobService, port: int) -> None:
    """Serves until standard input closes."""
    loop = asyncio.get_running_loop()
    blob = content(service.size)
    clients = Clients(service.total_mb_s * 1e6)
    server = await loop.create_server(lambda: _Connection(service, blob, clients), HOST, port, backlog=1024)
    over = asyncio.Event()

    def wait_for_end() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await over.wait()
    server.close()


@contextlib.contextmanager
def running_blob_server(service: BlobService | None = None) -> Iterator[str]:
    """The address of a server in a process of its own, which ends with the block or with this process."""
    service = service or BlobService()
    command = [sys.executable, "-P", "-m", "penstock.workloads.blob_server"]
    command += [f"--size={service.size}", f"--delay-ms={service.delay_ms}"]
    command += [f"--connection-mb-s={service.connection_mb_s}", f"--total-mb-s={service.total_mb_s}"]
    # a session of its own: Ctrl-C is for us, and we may still need blobs while we drain
    process = subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        line = process.stdout.readline()
        if not line:
            raise PenstockError(f"the blob server did not start (exit code {process.wait(GRACE_SECONDS)})")
        port = json.loads(line)["port"]
        _check_health(port)
        yield f"http://{HOST}:{port}"
    finally:
        _end(process)


def _check_health(port: int) -> None:
    connection = http.client.HTTPConnection(HOST, port, timeout=GRACE_SECONDS)
    try:
        connection.request("GET", "/health")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        raise PenstockError(f"the blob server does not answer on port {port}: {error}") from error
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    usual = BlobService()
    parser = argparse.ArgumentParser(prog="python -m penstock.workloads.blob_server", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--size", type=int, default=usual.size, help="bytes of a blob (%(default)s)")
    parser.add_argument("--delay-ms", type=float, default=usual.delay_ms, help="to the first byte (%(default)s)")
    parser.add_argument(
        "--connection-mb-s", type=float, default=usual.connection_mb_s, help="0: no limit (%(default)s)"
    )
    parser.add_argument("--total-mb-s", type=float, default=usual.total_mb_s, help="0: no limit (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0: any free one (%(default)s)")
    asked = vars(parser.parse_args(arguments))
    port = asked.pop("port")
    try:
        asyncio.run(serve(BlobService(**asked), port))
    except (BadInputError, OSError, OverflowError) as error:
        print(f"blob server: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
