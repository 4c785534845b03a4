"""Several machines on one: network namespaces with addresses of their own, joined by a bridge that leads nowhere else.

Each host has its own loopback, address and /tmp. Its link can be cut, restored, delayed and made lossy,
so that what happens between machines happens here. Everything needs root; where it cannot be had, the reason is said.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.base.errors import BadInputError, ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

MASTER = "master"
DRIVER = "driver"
"""The hosts beside the nodes: where the Master is, and where runs are conducted from."""

_CLONE_NEWNET = 0x40000000
_BRIDGE = "bridge"
_DEVICE = "eth0"
_FOLDER = Path("/var/run/netns")

_OWN_TMP = """
set -e
many=$1; shift
hold=/run/penstock-keep-$$; mkdir "$hold"
at=0; for kept in "$@"; do
  [ $at -lt $many ] || break
  mkdir "$hold/$at"; mount --bind "$kept" "$hold/$at"; at=$((at + 1))
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
at=0; for kept in "$@"; do
  [ $at -lt $many ] || break
  mkdir -p "$kept"; mount --bind "$hold/$at" "$kept"; umount "$hold/$at"; rmdir "$hold/$at"; at=$((at + 1))
done
rmdir "$hold"; shift $many
[ -d "${TMPDIR:-/tmp}" ] || export TMPDIR=/tmp
exec "$@"
"""
"""In a mount namespace of its own: a /tmp of its own, in which nothing but so many folders is what it was."""


@dataclass(frozen=True, slots=True)
class NamespaceNetwork:
    """`name` begins the names of the namespaces; hosts are numbered in their order."""

    name: str
    hosts: tuple[str, ...]
    shared: Path
    """The one folder all hosts see."""

    def address(self, host: str) -> str:
        return f"10.77.0.{self._number(host)}"

    def namespace(self, host: str) -> str:
        return f"{self.name}-{self._number(host)}"

    def _number(self, host: str) -> int:
        if host not in self.hosts:
            raise BadInputError(f"unknown host '{host}'; known: {', '.join(self.hosts)}")
        return 1 + self.hosts.index(host)

    # Life.

    def create(self) -> None:
        """Namespaces, a bridge in one of their own, and a link from each host to it."""
        reason = why_not()
        if reason is not None:
            raise ClusterError(f"network namespaces cannot be made here: {reason}")
        try:
            _ip("netns", "add", self.name)
            _ip("-n", self.name, "link", "add", _BRIDGE, "type", "bridge")
            _ip("-n", self.name, "link", "set", _BRIDGE, "up")
            for host in self.hosts:
                self.add(host)
        except BaseException:
            self.delete()
            raise

    def add(self, host: str) -> None:
        there, port = self.namespace(host), f"port{self._number(host)}"
        _ip("netns", "add", there)
        _ip("-n", self.name, "link", "add", port, "type", "veth", "peer", "name", _DEVICE, "netns", there)
        _ip("-n", self.name, "link", "set", port, "master", _BRIDGE, "up")
        _ip("-n", there, "link", "set", "lo", "up")
        _ip("-n", there, "addr", "add", f"{self.address(host)}/24", "dev", _DEVICE)
        _ip("-n", there, "link", "set", _DEVICE, "up")

    def delete(self) -> None:
        """What is there of it; whoever still runs in it keeps it until it ends."""
        for number in range(len(self.hosts), -1, -1):
            name = f"{self.name}-{number}" if number else self.name
            if (_FOLDER / name).exists():
                _ip("netns", "delete", name)

    # Use.

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """A command that runs on a host of the network."""
        kept = [str(self.shared), *_code_below(Path("/tmp"))]  # noqa: S108 - that of each host is its own
        own_tmp = ["unshare", "--mount", "sh", "-c", _OWN_TMP, "sh", str(len(kept)), *kept]
        return [_tool("ip"), "netns", "exec", self.namespace(host), *own_tmp, *command]

    def seen_from(self, host: str, work: Callable[[], T]) -> T:
        """What `work` comes to when its connections are made from a host."""
        answers: list[T] = []
        errors: list[BaseException] = []

        def there() -> None:
            try:
                _enter(_FOLDER / self.namespace(host))
                answers.append(work())
            except BaseException as error:  # raised in the calling thread
                errors.append(error)

        # a namespace belongs to a thread: this one ends with it
        thread = threading.Thread(target=there)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return answers[0]

    # Trouble.

    def cut(self, host: str) -> None:
        """Nothing goes in or out, and nobody is told: no connection is reset."""
        _ip("-n", self.name, "link", "set", f"port{self._number(host)}", "down")

    def restore(self, host: str) -> None:
        """The link is what it was at first."""
        _ip("-n", self.name, "link", "set", f"port{self._number(host)}", "up")
        _call([_tool("tc"), "-n", self.namespace(host), "qdisc", "del", "dev", _DEVICE, "root"], may_fail=True)

    def slow(self, host: str, delay_ms: float = 0.0, loss_percent: float = 0.0) -> None:
        """What the host sends comes later, and some of it never; not every kernel can (`netem`)."""
        self._queue(host, "netem", "delay", f"{delay_ms:g}ms", "loss", f"{loss_percent:g}%")

    def narrow(self, host: str, megabits: float) -> None:
        """The host sends no more than so many megabits per second."""
        self._queue(host, "tbf", "rate", f"{megabits:g}mbit", "burst", "32k", "latency", "200ms")

    def _queue(self, host: str, *words: str) -> None:
        _call([_tool("tc"), "-n", self.namespace(host), "qdisc", "replace", "dev", _DEVICE, "root", *words])


def why_not() -> str | None:
    """Why this machine or user cannot have network namespaces; None where it can."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [name for name in ("ip", "unshare", "mount") if shutil.which(name) is None]
    if missing:
        return f"there is no {' and no '.join(missing)}"
    probe = f"penstock-try-{os.getpid()}"
    try:
        _ip("netns", "add", probe)
    except ClusterError as error:
        return str(error)
    try:
        _ip("-n", probe, "link", "add", _BRIDGE, "type", "bridge")
        _ip("-n", probe, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    except ClusterError as error:
        return str(error)
    finally:
        _ip("netns", "delete", probe)
    return None


def _enter(namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(namespace, os.O_RDONLY)
    try:
        if libc.setns(handle, _CLONE_NEWNET):
            raise ClusterError(f"{namespace}: cannot be entered: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(handle)


def _code_below(folder: Path) -> list[str]:
    """Where this process has its Python and its modules from, as far as that is below `folder`."""
    places = {Path(place or ".").resolve() for place in (sys.prefix, "", *sys.path)}
    kept: list[Path] = []
    for place in sorted(place for place in places if place.is_dir() and place.is_relative_to(folder)):
        if place != folder and not any(place.is_relative_to(other) for other in kept):
            kept.append(place)
    return [str(place) for place in kept]


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ClusterError(f"there is no '{name}' on this machine")
    return path


def _ip(*words: str) -> None:
    _call([_tool("ip"), *words])


def _call(command: list[str], *, may_fail: bool = False) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - words of this module
    if done.returncode and not may_fail:
        complaint = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise ClusterError(f"{' '.join(command[1:])}: {complaint}")
