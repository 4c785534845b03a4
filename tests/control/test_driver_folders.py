"""Folders of pipelines: their names, their one owner, and failures that concern one pipeline alone."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
import pytest
from driver_stand_in import A, B, executors_in, order, pid, until

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError
from penstock.base.files import private_folder
from penstock.control.controller import Controller
from penstock.control.core.messages import Died, DriverEnded, Holds, OrderKind, Started, Submit
from penstock.control.core.records import ControllerState, PipelineState, Submission
from penstock.control.executors import driver_files
from penstock.control.executors import driver_processes as processes
from penstock.control.executors.driver_files import (
    DRIVER,
    JOB,
    LOCK,
    ORDER,
    OWNER,
    DriverJob,
    DriverOrder,
    DriverProcess,
    FolderOwner,
    folder_of,
    get,
    keep_fence,
    put,
)
from penstock.control.executors.driver_processes import DRIVER_COMMAND, end_drivers
from penstock.control.executors.simulated import SimulatedNodes
from penstock.control.store.store import Store
from penstock.service.local import DRIVERS, ServiceSettings
from penstock.service.server import make_controller
from penstock.testing import ManualClock
from penstock.testing.controller import RatePerUnit as PerUnit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.control.core.messages import PipelineOrder
    from penstock.control.executors.driver_processes import DriverExecutors

LONG = ["订单" * 14 + "汇", "!" * 200, "é" * 200, "😀" * 200, "😀" * 199 + "x"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_drivers(tmp_path / "pipelines")


def named(name: str, **more: Any) -> PipelineOrder:
    return replace(order(**more), pipeline=name, submission=Submission(name, "good"))


def deaths(executors: DriverExecutors) -> list[Died]:
    return [seen for seen in executors.observe(0.0) if isinstance(seen, Died)]


def test_every_name_has_a_folder_of_its_own(tmp_path: Path) -> None:
    names = [*LONG, ".", "..", "%2E", "%2E%2E", "...", "a", "A b", folder_of(tmp_path, LONG[0]).name]
    folders = [folder_of(tmp_path, name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        folder.mkdir()  # no longer than the file system takes
        assert folder.resolve().parent == tmp_path.resolve()


@pytest.mark.parametrize("name", ["orders", "my orders", ".hidden", "a/b%", "заказы", "x" * 255])
def test_folders_of_stores_that_exist_are_found_again(tmp_path: Path, name: str) -> None:
    assert folder_of(tmp_path, name).name == quote(name, safe=" ")


@pytest.mark.parametrize("name", [LONG[0], ".."])
def test_a_pipeline_of_any_name_runs_and_ends(folder: Path, name: str) -> None:
    executors = executors_in(folder)
    executors.want([named(name)], 1)
    until(executors, Started(name, 1))
    assert {path.name for path in folder.iterdir()} == {"pipelines", "stand_in.py"}
    driver = psutil.Process(pid(executors, name))
    end_drivers(folder / "pipelines")
    assert not driver.is_running()


def test_a_controller_with_a_long_name_in_its_store_starts_again(folder: Path) -> None:
    for _ in range(2):
        store = Store(f"sqlite:///{folder / 'store.db'}")
        nodes, clock = SimulatedNodes(2, 1), ManualClock(1000.0)
        controller = Controller(
            store, executors_in(folder), nodes, PerUnit(), clock, ManualClock(0.0), ControllerState()
        )
        controller.look()
        controller.ask(Submit(Submission(LONG[0], "good", desired=1, load="5")))
        watch = Stopwatch()
        while controller.state.pipelines[LONG[0]].state is not PipelineState.ACTIVE:
            assert watch.seconds() < 20, controller.state.pipelines
            controller.look()
        controller.close()


def test_one_that_cannot_be_started_is_dead_and_the_others_get_their_orders(folder: Path) -> None:
    executors = executors_in(folder)
    blocked = folder / "pipelines" / "blocked"
    blocked.write_text("not a folder")
    executors.want([named("blocked"), named("p")], 1)
    seen = until(executors, Started("p", 1))
    [death] = [one for one in seen if isinstance(one, Died)]
    assert (death.pipeline, death.incarnation) == ("blocked", 1)
    assert "blocked: cannot be used" in death.why
    assert Holds("blocked", 1, ()) in seen
    blocked.unlink()
    executors.want([named("blocked", serial=2, incarnation=2), named("p")], 1)
    until(executors, Started("blocked", 2))


def test_a_full_disk_kills_no_driver_and_its_order_is_written_when_there_is_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executors = executors_in(folder)
    executors.want([order()], 1)
    until(executors, Started("p", 1))
    monkeypatch.setattr(processes, "MAX_RETRY_SECONDS", 0.0)
    with monkeypatch.context() as full:
        full.setattr(driver_files, "write_text", refuse)
        executors.want([order(serial=2, slots=(A,))], 1)
        assert deaths(executors) == []
    until(executors, Holds("p", 2, (A,)))


def test_one_that_must_end_is_ended_on_a_full_disk_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executors = executors_in(folder)
    executors.want([order("deaf")], 1)
    until(executors, Started("p", 1))
    monkeypatch.setattr(driver_files, "write_text", refuse)
    executors.want([order("deaf", serial=2, slots=(), kind=OrderKind.END, forced=True)], 1)
    assert DriverEnded("p") in executors.observe(0.0)


def refuse(path: Path, text: str) -> None:
    raise BadInputError(f"{path}: cannot be written: No space left on device")


def test_no_file_descriptor_left_makes_no_driver_dead(folder: Path) -> None:
    executors = executors_in(folder)
    executors.want([order()], 1)
    until(executors, Started("p", 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        seen = executors.observe(0.0)
        executors.want([order(serial=2, slots=(A,))], 1)
        seen += executors.observe(0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert seen == []
    assert deaths(executors) == []
    assert psutil.Process(pid(executors)).is_running()


def test_a_step_of_the_clock_makes_no_driver_dead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executors = executors_in(folder)
    executors.want([order()], 1)
    until(executors, Started("p", 1))
    before = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: before(process) + 3.0)
    seen = executors.observe(0.0)
    assert not any(isinstance(one, Died | Holds) for one in seen)
    driver = psutil.Process(pid(executors))
    end_drivers(folder / "pipelines")
    assert not driver.is_running()


def test_a_driver_that_holds_its_lock_is_alive_whatever_its_file_says_of_its_start(folder: Path) -> None:
    base = folder / "pipelines"
    executors = executors_in(folder)
    (base / "p").mkdir()
    with subprocess.Popen(["flock", str(base / "p" / LOCK), "sleep", "60"], start_new_session=True) as driver:
        try:
            while not driver_files.is_locked(base / "p"):
                assert driver.poll() is None
            # as Penstock 0.1 wrote it, before the clock was set
            put(base / "p", DRIVER, DriverProcess(pid=driver.pid, started=5.0, incarnation=1))
            executors.want([order()], 1)
            assert executors.observe(0.0) == []
            assert get(DriverJob, base / "p", JOB) is None
            end_drivers(base)
            assert not psutil.pid_exists(driver.pid)
        finally:
            driver.kill()


def test_slots_are_not_free_while_a_driver_of_elsewhere_holds_its_lock(folder: Path) -> None:
    executors = executors_in(folder)
    (folder / "pipelines" / "p").mkdir()
    with (folder / "pipelines" / "p" / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        executors.want([order()], 1)
        [death] = executors.observe(0.0)
        assert isinstance(death, Died)
        assert "not among the processes seen from here" in death.why


def test_a_controller_that_was_replaced_leaves_the_drivers_of_its_successor_alone(folder: Path) -> None:
    first = executors_in(folder)
    first.want([order()], 1)
    until(first, Started("p", 1))
    replaced = executors_in(folder)
    replaced.want([order()], 2)
    os.kill(pid(replaced), signal.SIGKILL)
    successor = executors_in(folder)
    successor.want([order(serial=2, incarnation=2)], 3)
    until(successor, Started("p", 2))
    driver = pid(successor)
    base = folder / "pipelines" / "p"
    before = (base / ORDER).read_text(), (base / JOB).read_text()
    [death] = [*deaths(replaced), *deaths(replaced)]
    assert "a controller with a later lease (3) has taken its drivers over" in death.why
    replaced.want([order(serial=9, slots=(), kind=OrderKind.END, forced=True)], 2)
    replaced.observe(0.0)
    assert ((base / ORDER).read_text(), (base / JOB).read_text()) == before
    assert psutil.Process(driver).is_running()
    assert pid(successor) == driver


def test_a_driver_started_by_a_controller_that_was_replaced_does_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    keep_fence(tmp_path, "", 3)
    put(folder, JOB, DriverJob(name="p", pipeline="linear", incarnation=1, fence=2))
    put(folder, ORDER, DriverOrder(kind=OrderKind.RUN, serial=1, incarnation=1, fence=2))
    ended = subprocess.run([*DRIVER_COMMAND, str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "a controller with a later lease (3)" in ended.stderr
    assert not (folder / DRIVER).exists()


def test_drivers_of_another_store_are_refused_in_one_line(folder: Path) -> None:
    executors = executors_in(folder, store="mine")
    executors.want([order(slots=(A, B))], 7)
    until(executors, Started("p", 1))  # its process can be ended only after it has written who it is
    assert get(FolderOwner, folder / "pipelines", OWNER) == FolderOwner(store="mine", fence=7)
    executors_in(folder, store="mine")
    with pytest.raises(BadInputError, match="drivers and checkpoints are of another store; start this") as refusal:
        executors_in(folder, store="another")
    assert "\n" not in str(refusal.value)


def test_a_store_keeps_its_id(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / name}.db" for name in ("a", "a", "b")]
    first, again, another = (Store(url).id for url in urls)
    assert first == again != another


def test_a_controller_refuses_the_drivers_of_another_store(tmp_path: Path) -> None:
    settings = ServiceSettings(simulated=False, cluster_folder=str(tmp_path), store=f"sqlite:///{tmp_path / 'b.db'}")
    put(private_folder(tmp_path / DRIVERS), OWNER, FolderOwner(store="of another store", fence=7))
    with pytest.raises(BadInputError, match="are of another store"):
        make_controller(settings, tmp_path)
