"""Short ways to run an operator, to time something, and to ask the blob server."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from penstock.dataflow.logic import Logic
from penstock.workloads.blob_server import BlobService

ROWS = 2_000
AT_ONCE = BlobService(size=1_000, delay_ms=0, connection_mb_s=0, total_mb_s=0)


def run(code: Logic, values: list[int], **more: object) -> list[Any]:
    """What a thread does with its tuples."""
    handle = () if code.open is None else (code.open(),)
    try:
        return [code({"value": value, **more}, *handle) for value in values]
    finally:
        if code.close is not None:
            code.close(*handle)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ask(url: str, request: bytes) -> bytes:
    """The first line of the answer to `request`, byte by byte as given."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline().strip()


def answers(url: str) -> bool:
    try:
        return ask(url, b"GET /health HTTP/1.1\r\n\r\n") != b""
    except OSError:
        return False
