"""One Master or one Worker in the foreground: how a cluster of several machines is started, machine by machine."""

from __future__ import annotations

import ipaddress
import re
import secrets
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.files import temporary_folder
from penstock.base.processes import end, kill_marked, marked, start
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.spark.clusters.standalone.daemons import (
    LOWEST_SLOT_MB,
    ClusterEnvironment,
    master_command,
    own_environment,
    worker_command,
)
from penstock.spark.session.secret import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def master_host(master_url: str) -> str:
    """The host of spark://host:port."""
    address = re.fullmatch(r"spark://([^/:\s]+):(\d{1,5})", master_url)
    if address is None:
        raise BadInputError(f"master '{master_url}': expected spark://host:port")
    return address.group(1)


def run_master(host: str, port: int, web_port: int, secret_file: Path | None) -> None:
    """A Master until it is interrupted."""
    _run(host, secret_file, "the Master", lambda cluster: master_command(cluster, port, web_port))


def run_worker(
    master_url: str,
    node: str,
    slots: int,
    memory_mb: float | None,
    host: str,
    secret_file: Path | None,
    rack: str | None = None,
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
        lambda cluster: worker_command(cluster, node, slots, slot_mb, master_url, rack),
    )


def _run(host: str, secret_file: Path | None, what: str, command: Callable[[ClusterEnvironment], list[str]]) -> None:
    secret = None if secret_file is None else read_secret(secret_file)
    with _stopped_by_terminate(), temporary_folder("cluster") as folder:
        cluster = ClusterEnvironment(secrets.token_hex(16), folder, host, secret)
        arguments, environment = command(cluster), own_environment(cluster)
        try:
            code = psutil.Process(start(arguments, environment, log=None).pid).wait()
        finally:
            # Find processes by their mark: an interrupt may come before the pid is known.
            end(marked(cluster.mark))
            kill_marked(cluster.mark)
    raise ClusterError(f"{what} ended by itself with exit code {code}; its last messages are above")


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
