"""One controller to a store, whatever clocks do, whoever restarts, and wherever the store is reached from."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_control_store import set_lease, sqlite

from penstock.base.clock import pause
from penstock.control.store.lease import LeaseHeldError, LostLeaseError
from penstock.control.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.store.lease.LEASE_SECONDS", 0.3)
    monkeypatch.setattr("penstock.control.store.lease.POLL_SECONDS", 0.02)


def elsewhere(store: Store, **values: Any) -> Store:
    """The store as seen from another machine or container."""
    store._holder = replace(store._holder, **{"boot": "another", **values})
    return store


def folder_of(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    return folder


class TestHolderInSight:
    def test_a_living_one_is_named_at_once(self, tmp_path: Path) -> None:
        first, second = sqlite(tmp_path), sqlite(tmp_path)
        held = first.take_lease(100.0)
        with pytest.raises(LeaseHeldError, match=rf"process {os.getpid()} on {socket.gethostname()}; end it with"):
            second.take_lease(101.0)
        first.give_back(held)
        assert second.take_lease(102.0).number == held.number + 1
        with pytest.raises(LostLeaseError):
            first.renew(held, 103.0)
        first.close()
        second.close()

    def test_a_dead_one_is_not_waited_for(self, tmp_path: Path) -> None:
        store = sqlite(tmp_path)
        store.take_lease(100.0)
        child = subprocess.Popen(["true"])
        child.wait()
        set_lease(store, pid=child.pid)
        assert store.take_lease(101.0).number == 2
        store.close()

    def test_a_killed_one_that_nobody_collected_is_dead(self, tmp_path: Path) -> None:
        store = sqlite(tmp_path)
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, store_url(tmp_path), "stay"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline().endswith(b" has 1\n")
            with pytest.raises(LeaseHeldError):
                store.take_lease(0.0)
            child.kill()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            assert store.take_lease(0.0).number == 2
        store.close()

    def test_another_process_with_the_number_of_the_holder_is_not_the_holder(self, tmp_path: Path) -> None:
        """As process 1 of a container that was started again, and after process numbers were used up."""
        store = sqlite(tmp_path)
        store.take_lease(100.0)
        set_lease(store, ticks=1)
        assert store.take_lease(101.0).number == 2
        store.close()

    def test_it_can_be_taken_over_by_request_and_writes_no_more(self, tmp_path: Path) -> None:
        first, second = sqlite(tmp_path), Store(store_url(tmp_path), take_over=True)
        held = first.take_lease(0.0)
        second.take_lease(0.0)
        with pytest.raises(LostLeaseError):
            first.renew(held, 0.0)
        first.close()
        second.close()


@pytest.mark.usefixtures("short")
class TestHolderOutOfSight:
    @pytest.mark.parametrize("now", [-1e9, 0.0, 1e9])
    def test_one_that_is_silent_is_taken_over_whatever_the_clock_says(self, tmp_path: Path, now: float) -> None:
        first, second = sqlite(tmp_path), elsewhere(sqlite(tmp_path))
        held = first.take_lease(0.0)
        assert second.take_lease(now).number == held.number + 1
        first.close()
        second.close()

    @pytest.mark.parametrize("jump", [-1e9, 1e9])
    def test_one_that_renews_is_not_taken_over_whatever_its_clock_says(self, tmp_path: Path, jump: float) -> None:
        first, second = sqlite(tmp_path), elsewhere(sqlite(tmp_path))
        held = first.take_lease(0.0)
        with beating(first, held, jump), pytest.raises(LeaseHeldError, match="end it there"):
            second.take_lease(0.0)
        first.renew(held, 0.0)
        first.close()
        second.close()

    def test_a_container_of_the_same_host_name_does_not_see_the_other(self, tmp_path: Path) -> None:
        """Both have process 1, on one kernel; their process numbers count in different namespaces."""
        first, second = sqlite(tmp_path), elsewhere(sqlite(tmp_path), boot=sqlite(tmp_path)._holder.boot, namespace="x")
        held = first.take_lease(0.0)
        set_lease(first, pid=4_000_000)  # not there, seen from the second
        with beating(first, held, 0.0), pytest.raises(LeaseHeldError):
            second.take_lease(0.0)
        first.close()
        second.close()


class beating:  # noqa: N801 - reads as a verb
    """A holder that renews, in a thread."""

    def __init__(self, store: Store, held: Any, now: float) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, args=(store, held, now))

    def _renew(self, store: Store, held: Any, now: float) -> None:
        while not self._over.is_set():
            store.renew(held, now)
            pause(0.02)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class TestStateFolders:
    def test_a_store_of_another_folder_is_refused_by_host_and_folder(self, tmp_path: Path) -> None:
        """Given back or not: drivers outlive their controller, and stand in its folder."""
        one, other = folder_of(tmp_path, "one"), folder_of(tmp_path, "other")
        first = Store(store_url(tmp_path), folder=one)
        first._holder = replace(first._holder, host="host-a")
        first.give_back(first.take_lease(0.0))
        second = Store(store_url(tmp_path), folder=other)
        said = f"the store belongs to the controller of folder {one} on host 'host-a': its drivers may run there; "
        with pytest.raises(LeaseHeldError, match=said):
            second.take_lease(0.0)
        taking = Store(store_url(tmp_path), folder=other, take_over=True)
        taking.give_back(taking.take_lease(0.0))
        # from then on it is theirs
        with pytest.raises(LeaseHeldError, match=f"folder {other} on host"):
            first.take_lease(0.0)
        assert second.take_lease(0.0).number == 3
        for store in (first, second, taking):
            store.close()

    def test_a_folder_is_known_by_its_id_and_not_by_its_path(self, tmp_path: Path) -> None:
        """One folder may be mounted under different paths, and two machines have different folders with one path."""
        one = folder_of(tmp_path, "one")
        first = Store(store_url(tmp_path), folder=one)
        first.give_back(first.take_lease(0.0))
        moved = one.rename(tmp_path / "moved")
        same = Store(store_url(tmp_path), folder=moved)
        same.give_back(same.take_lease(0.0))
        impostor = Store(store_url(tmp_path), folder=folder_of(tmp_path, "moved-2"))
        shutil.move(moved, tmp_path / "away")
        shutil.move(tmp_path / "moved-2", moved)
        with pytest.raises(LeaseHeldError):
            impostor.take_lease(0.0)
        assert (tmp_path / "away" / "folder-id").stat().st_mode & 0o777 == 0o600
        for store in (first, same, impostor):
            store.close()


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'store.db'}"


CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.fixture
def container() -> list[str]:
    """Words that start a program as process 1 of process numbers of its own."""
    tried = subprocess.run([*CONTAINER, "true"], capture_output=True, check=False) if shutil.which("unshare") else None
    if tried is None or tried.returncode:
        pytest.skip("namespaces for processes cannot be made here")
    return CONTAINER


HOLD = """
import os, select, sys
from penstock.control.store import lease
from penstock.control.store.store import Store
lease.LEASE_SECONDS = 2.0
store = Store(sys.argv[1])
try:
    held = store.take_lease(0.0)
except lease.LeaseHeldError as error:
    print("refused", error, flush=True)
    sys.exit()
print("process", os.getpid(), "has", held.number, flush=True)
while sys.argv[2] == "stay":
    store.renew(held, 0.0)
    if select.select([sys.stdin], [], [], 0.1)[0]:
        break
os._exit(137)
"""


class TestContainers:
    def start(self, container: list[str], folder: Path, *words: str) -> Iterator[str]:
        command = [*container, sys.executable, "-c", HOLD, store_url(folder), *words]
        return iter(subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines())

    def test_one_that_was_killed_and_started_again_continues(self, container: list[str], tmp_path: Path) -> None:
        assert next(self.start(container, tmp_path, "die")) == "process 1 has 1"
        assert next(self.start(container, tmp_path, "die")) == "process 1 has 2"

    def test_a_second_one_does_not_take_over_a_living_one(self, container: list[str], tmp_path: Path) -> None:
        command = [*container, sys.executable, "-c", HOLD, store_url(tmp_path), "stay"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            assert first.stdin is not None
            assert first.stdout.readline() == "process 1 has 1\n"
            said = next(self.start(container, tmp_path, "die"))
            assert said.startswith("refused the store is held by the controller with process 1 on")
            first.stdin.close()
