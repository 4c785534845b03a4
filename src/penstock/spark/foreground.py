"""One Master or one Worker in the foreground: how a cluster of several machines is started, machine by machine."""

from __future__ import annotations

import ipaddress
import re
import secrets
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.errors import BadInputError, ClusterError
from penstock.files import read_text
from penstock.spark.daemons import LOWEST_SLOT_MB, Settled, master_command, own_environment, worker_command
from penstock.spark.processes import end, kill_marked, marked, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORTEST_SECRET = 16


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def master_host(master_url: str) -> str:
    """The host of spark://host:port."""
    found = re.fullmatch(r"spark://([^/:\s]+):(\d{1,5})", master_url)
    if found is None:
        raise BadInputError(f"master '{master_url}': expected spark://host:port")
    return found.group(1)


def run_master(host: str, port: int, web_port: int, secret_file: Path | None) -> None:
    """A Master until it is interrupted."""
    _run(host, secret_file, "the Master", lambda settled: master_command(settled, port, web_port))


def run_worker(
    master_url: str, node: str, slots: int, memory_mb: float | None, host: str, secret_file: Path | None
) -> None:
    """The Worker of a node until it is interrupted; `memory_mb` is that of one slot."""
    slot_mb = DEFAULT_SLOT_MEMORY_MB if memory_mb is None else memory_mb
    if is_loopback(host) and not is_loopback(master_host(master_url)):
        raise BadInputError(f"the Master is on another machine: say by --host how it reaches this one, not {host}")
    if not LOWEST_SLOT_MB <= slot_mb < float("inf"):
        raise BadInputError(f"memory: expected at least {LOWEST_SLOT_MB} MB for a slot, found {slot_mb:g}")
    _run(
        host,
        secret_file,
        f"the Worker of '{node}'",
        lambda settled: worker_command(settled, node, slots, slot_mb, master_url),
    )


def _run(host: str, secret_file: Path | None, what: str, command: Callable[[Settled], list[str]]) -> None:
    secret = read_secret(secret_file)
    with _stopped_by_terminate(), tempfile.TemporaryDirectory(prefix="penstock-cluster-") as folder:
        settled = Settled(secrets.token_hex(16), Path(folder), host, secret)
        arguments, environment = command(settled), own_environment(settled)
        try:
            code = psutil.Process(start(arguments, environment, log=None).pid).wait()
        finally:
            # By their mark: an interrupt may come before anybody knows the number of what was started.
            end(marked(settled.mark))
            kill_marked(settled.mark)
    raise ClusterError(f"{what} ended by itself with exit code {code}; its last messages are above")


def read_secret(file: Path | None) -> str | None:
    if file is None:
        return None
    secret = read_text(file).strip()
    if len(secret) < SHORTEST_SECRET:
        raise BadInputError(f"{file}: expected a secret of at least {SHORTEST_SECRET} characters")
    return secret


@contextmanager
def _stopped_by_terminate() -> Iterator[None]:
    """A service manager's request to end is what Ctrl-C is: everything started must end too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
