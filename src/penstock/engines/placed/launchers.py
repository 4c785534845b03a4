"""Bundles as long-running Spark tasks: one job each, pinned to its slot by the slot's resource profile."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from penstock.base.clock import Stopwatch
from penstock.cluster.slot_resources import SLOT, resource_name, slot_resource_name
from penstock.engines.placed.bundle.process import Host
from penstock.engines.placed.messages import TaskPlace
from penstock.spark.internals.executors import (
    executor_ids,
    executor_resources,
    kill_executors,
    request_executors_by_profile,
)
from penstock.spark.session.process_tree import tree_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.resource import ResourceProfile
    from pyspark.sql import SparkSession

    from penstock.cluster.topology import Slot
    from penstock.engines.placed.bundle_plan import BundleCode
    from penstock.engines.placed.flow.layout import Bundle
    from penstock.engines.placed.wire import Address, Credentials


_LOG = logging.getLogger(__name__)

TASKS_PER_SLOT = 16
"""Bundles a slot can run side by side: what Spark calls the cores of an executor only counts tasks."""
MEASURED_SECONDS = 2.0
"""Looking at all processes of a machine takes milliseconds."""


class Launcher(Protocol):
    """Starts processes for bundles."""

    def start(
        self,
        bundle: Bundle,
        code: BundleCode,
        start: int,
        conductor: Address,
        credentials: Credentials,
        ended: Callable[[str], None],
    ) -> None:
        """On the bundle's slot; one of an earlier start of the same bundle is ended. `ended` hears why it is over."""

    def cancel(self, bundle: str) -> None:
        """End the bundle's process, if there is one."""

    def close(self) -> None:
        """End all."""


@dataclass(frozen=True)
class BundleTask:
    """What the Spark task runs."""

    code: BundleCode
    start: int
    conductor: Address
    credentials: Credentials

    def __call__(self, _items: Iterable[int]) -> Iterable[int]:
        meter = SlotMeter()
        Host(self.code, self.start, self.conductor, self.credentials, task_place(), meter.read).run()
        return ()


EXECUTOR_MEMORY_MB = 512
"""Memory of the executor of a slot, unless it is ordered. Its Python workers hold the data."""


@dataclass
class _SlotProfiles:
    """The profiles of an application, one per slot."""

    present: dict[Slot, tuple[int, ResourceProfile]] = field(default_factory=dict)
    """Memory and profile of each slot's executor."""
    retired: set[int] = field(default_factory=set)
    """Ids of profiles that another memory has replaced: no executors are asked for by them."""


_PROFILES: dict[str, _SlotProfiles] = {}
"""By application. Spark starts another executor for another profile, however alike; so runs that share a session share
these, and find their executors warm."""


class SparkLauncher:
    """The profiles of an application live as long as it does: a slot keeps its executor while its memory stays."""

    def __init__(self, session: SparkSession, memory_mb: Mapping[Slot, int | None], name: str) -> None:
        """`memory_mb`: memory of the executors that are ordered, by slot."""
        self._session = session
        self._memory_mb = dict(memory_mb)
        self._name = name
        self._profiles = _PROFILES.setdefault(str(session.sparkContext.applicationId), _SlotProfiles())
        self._groups: dict[str, tuple[str, Slot]] = {}
        """By bundle: its group of jobs, and its slot."""
        self._wanted: set[Slot] = set()
        """Slots whose executors were asked for, and not let go of since."""
        self._lock = threading.Lock()

    def start(
        self,
        bundle: Bundle,
        code: BundleCode,
        start: int,
        conductor: Address,
        credentials: Credentials,
        ended: Callable[[str], None],
    ) -> None:
        self.cancel(bundle.name)
        context = self._session.sparkContext
        group = f"{self._name}-{bundle.name}-{start}"
        self._memory_mb[bundle.slot] = bundle.memory_mb
        profile = self.profile(bundle.slot)
        with self._lock:
            self._groups[bundle.name] = (group, bundle.slot)
        self._want([bundle.slot])

        def job() -> None:
            try:
                context.setJobGroup(group, f"bundle {bundle.name}", interruptOnCancel=True)
                task = BundleTask(code, start, conductor, credentials)
                context.parallelize([0], 1).mapPartitions(task).withResources(profile).collect()
            except Exception as error:  # whatever ended it, the conductor decides
                ended(reason_of(error))
            else:
                ended("it ended")

        threading.Thread(target=job, daemon=True, name=group).start()

    def warm(self, slots: Iterable[Slot]) -> None:
        """Have the executors of all slots started at once, while other things are made ready."""
        context = self._session.sparkContext
        wanted = list(slots)
        self._want(wanted)
        for slot in wanted:
            rdd = context.parallelize([0], 1).withResources(self.profile(slot))
            threading.Thread(target=_quietly, args=(rdd.count,), daemon=True).start()

    def _want(self, slots: Iterable[Slot]) -> None:
        """Have the Master start executors now. If that fails on this version of Spark, it asks later by itself."""
        new = set(slots) - self._wanted
        self._wanted |= new
        if not new:
            return
        self._request()

    def _request(self) -> None:
        counts = dict.fromkeys(self._profiles.retired, 0)
        counts |= dict.fromkeys((self.profile(slot).id for slot in sorted(self._wanted)), 1)
        try:
            request_executors_by_profile(self._session, counts)
        except Exception as error:  # any error of Py4J: this only saves time
            _LOG.info("executors are asked for by Spark itself: %s", error)

    def profile(self, slot: Slot) -> ResourceProfile:
        """Return the profile of a slot. The executor on it ends if it was started with another memory."""
        wanted = self._memory_mb.get(slot) or EXECUTOR_MEMORY_MB
        memory_mb, profile = self._profiles.present.get(slot, (0, None))
        if profile is None or memory_mb != wanted:
            if profile is not None:
                self._retire(slot, profile)
            profile = _profile(slot, wanted)
            self._session.sparkContext.parallelize([0], 1).withResources(profile)  # Spark knows it from now on
            self._profiles.present[slot] = wanted, profile
        return profile

    def present_profile(self, slot: Slot) -> ResourceProfile:
        """Return the profile by which the executor on a slot was started."""
        known = self._profiles.present.get(slot)
        return self.profile(slot) if known is None else known[1]

    def _retire(self, slot: Slot, profile: ResourceProfile) -> None:
        """End the executor of a slot, and have none started in its place."""
        del self._profiles.present[slot]
        self._profiles.retired.add(profile.id)
        self._wanted.discard(slot)
        self._request()
        resource = slot_resource_name(slot.node, slot.number)
        present = self.executors()
        held = executor_resources(self._session, [resource])
        former = [name for name, names in held.items() if resource in names and name in present]
        if former:
            kill_executors(self._session, former, lower_target=False, force=True)

    def cancel(self, bundle: str) -> None:
        with self._lock:
            known = self._groups.pop(bundle, None)
            if known is not None and all(slot != known[1] for _, slot in self._groups.values()):
                self._wanted.discard(known[1])
        if known is not None:
            # the context may be gone already
            with suppress(Exception):
                self._session.sparkContext.cancelJobGroup(known[0])

    def close(self) -> None:
        for bundle in list(self._groups):
            self.cancel(bundle)

    def executors(self) -> set[str]:
        """Those registered with the driver now."""
        return set(executor_ids(self._session))

    def release(self, executors: Sequence[str], kept: Collection[Slot]) -> None:
        """End executors that no bundle is on, so that their slots are free; those of `kept` stay."""
        self._wanted &= set(kept)
        present = self.executors()
        surplus = [name for name in executors if name in present]
        if surplus:
            kill_executors(self._session, surplus, lower_target=True, force=True)


def _quietly(work: Callable[[], object]) -> None:
    """What goes wrong here goes wrong again where it is heard."""
    with suppress(Exception):
        work()


def reason_of(error: BaseException) -> str:
    """The line of Spark's message that says what happened in the worker."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        name = line.partition(":")[0]
        if name.endswith(("Error", "Exception")) and "." not in name:
            return line
    return next((line for line in lines if "ExecutorLost" in line or "cancelled" in line), lines[0] if lines else "?")


def _profile(slot: Slot, memory_mb: int) -> ResourceProfile:
    from pyspark.resource import (  # noqa: PLC0415 - Spark loads only when it is used
        ExecutorResourceRequests,
        ResourceProfileBuilder,
        TaskResourceRequests,
    )

    tasks = TASKS_PER_SLOT
    executor = ExecutorResourceRequests().cores(tasks).memory(f"{memory_mb}m")
    task = TaskResourceRequests().cpus(1)
    for name in (resource_name(slot.node), SLOT, slot_resource_name(slot.node, slot.number)):
        executor, task = executor.resource(name, 1), task.resource(name, 1 / tasks)
    return ResourceProfileBuilder().require(executor).require(task).build


class SlotMeter:
    """CPU and memory of the slot this process belongs to: its Java process and all below it."""

    def __init__(self) -> None:
        self._root = _java() or psutil.Process()
        self._since: Stopwatch | None = None
        self._found: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        if self._since is None or self._since.seconds() > MEASURED_SECONDS:
            self._since = Stopwatch()
            usage = tree_usage(self._root)
            self._found = {"cpu_seconds": usage.cpu_seconds, "memory_mb": usage.memory_mb}
        return self._found


def _java() -> psutil.Process | None:
    return next((parent for parent in psutil.Process().parents() if "java" in parent.name()), None)


def task_place() -> TaskPlace:
    """Return where Spark says this task runs (its resources name the node and the slot), and which process this is."""
    from pyspark import TaskContext  # noqa: PLC0415 - only known inside a task

    context = TaskContext.get()
    held = {} if context is None else context.resources()
    resources = {name: tuple(resource.addresses) for name, resource in held.items()}
    java = _java()
    words = java.cmdline() if java is not None else []

    def option(name: str) -> str | None:
        return words[words.index(name) + 1] if name in words[:-1] else None

    pid = None if java is None else java.pid
    return TaskPlace(psutil.Process().pid, pid, resources, option("--executor-id"), option("--worker-url"))


# Bundles as plain processes of this machine: the placed engine without Spark, for tests and benches.
#
# Everything else is the same: processes connect, link up, stage and die as Spark's tasks do, only faster.


_FORK = multiprocessing.get_context("fork")


def _host(code: BundleCode, start: int, conductor: Address, credentials: Credentials) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host = Host(code, start, conductor, credentials, TaskPlace(os.getpid()), dict)
    # for fault injection: breaks this process's links, as a network would
    signal.signal(signal.SIGUSR1, lambda *_: host.break_links())
    host.run()


class LocalLauncher:
    """Processes by bundle; whoever wants to kill one finds it here."""

    def __init__(self) -> None:
        self.processes: dict[str, Any] = {}

    def start(
        self,
        bundle: Bundle,
        code: BundleCode,
        start: int,
        conductor: Address,
        credentials: Credentials,
        ended: Callable[[str], None],
    ) -> None:
        self.cancel(bundle.name)
        process = _FORK.Process(target=_host, args=(code, start, conductor, credentials), daemon=True)
        # clients of Kafka do not survive being freed in another process than the one that made them
        gc.freeze()
        try:
            process.start()
        finally:
            gc.unfreeze()
        self.processes[bundle.name] = process

        def watch() -> None:
            process.join()
            ended(f"its process ended with {process.exitcode}")

        threading.Thread(target=watch, daemon=True).start()

    def cancel(self, bundle: str) -> None:
        process = self.processes.pop(bundle, None)
        if process is not None and process.is_alive():
            process.kill()

    def close(self) -> None:
        for bundle in list(self.processes):
            self.cancel(bundle)
