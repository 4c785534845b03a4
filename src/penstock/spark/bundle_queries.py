"""The streaming queries of a placed run: one per bundle, each pinned to its slot.

A slot is a resource profile: one executor that asks for one unit of its node's resource. Bundles on the same slot share
the profile object, and so the executor. A query keeps nothing that matters in its checkpoint (tickets and manifests say
what is done), so it can be started anew anywhere at any time; only aggregations keep their state there.
"""

from __future__ import annotations

import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.spark.aggregate_query import aggregate_frame, output_mode
from penstock.spark.bundle_function import OUTPUT_SCHEMA, BundleFunction
from penstock.spark.bundles import by_slot
from penstock.spark.channels import BundleFolder
from penstock.spark.daemons import resource_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.resource import ResourceProfile
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.cluster.topology import Slot
    from penstock.spark.bundles import Bundle
    from penstock.spark.sinks import Ends

STARTING_AT_ONCE = 4
TASKS_PER_SLOT = 16
"""Bundles a slot can run side by side: what Spark calls the cores of an executor only counts tasks."""


class Slots:
    """The resource profiles of an application, one per slot, for as long as it lives.

    On embedded Spark there is one process for everything, and no profiles.
    """

    def __init__(self, executor_memory_mb: int | None) -> None:
        self._memory_mb = executor_memory_mb
        self._profiles: dict[Slot, ResourceProfile] = {}

    def profile(self, slot: Slot) -> ResourceProfile | None:
        if self._memory_mb is None:
            return None
        if slot not in self._profiles:
            self._profiles[slot] = _profile(slot, TASKS_PER_SLOT, self._memory_mb)
        return self._profiles[slot]


class BundleQueries:
    def __init__(
        self,
        session: SparkSession,
        folder: Path,
        bundles: Sequence[Bundle],
        environment: Mapping[str, str],
        slots: Slots,
        interval_ms: int,
        ends: Ends,
    ) -> None:
        self._session = session
        self._folder = folder
        self.bundles = {bundle.name: bundle for bundle in bundles}
        self._environment = tuple(environment.items())
        self._interval_ms = interval_ms
        self._slots = slots
        self._ends = ends
        self._queries: dict[str, StreamingQuery] = {}

    def start(self) -> None:
        """All of them, several at once: starting a query is mostly waiting."""
        for bundle in self.bundles.values():
            self._slots.profile(bundle.slot)
        with ThreadPoolExecutor(STARTING_AT_ONCE) as pool:
            list(pool.map(self.start_one, self.bundles))

    def start_one(self, name: str) -> None:
        bundle = self.bundles[name]
        lines = (
            self._session_of(bundle)
            .readStream.format("text")
            .option("maxFilesPerTrigger", 1)
            .load(str(BundleFolder(self._folder, name).tickets))
        )
        profile = self._slots.profile(bundle.slot)
        if bundle.aggregate is not None:
            checkpoint = self._folder / "state" / name
            forget_unplanned(checkpoint)
            frame = aggregate_frame(lines, self._folder, bundle, self._environment, profile)
            writer = frame.writeStream.outputMode(output_mode(bundle.aggregate))
        else:
            checkpoint = self._folder / "checkpoints" / name / uuid.uuid4().hex
            function = BundleFunction(str(self._folder), bundle, self._environment, self._ends)
            writer = lines.mapInArrow(function, OUTPUT_SCHEMA, profile=profile).writeStream
        self._queries[name] = (
            writer.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .queryName(f"{name}-{uuid.uuid4().hex}")
            .trigger(processingTime=f"{self._interval_ms} milliseconds")
            .start()
        )

    def _session_of(self, bundle: Bundle) -> SparkSession:
        """An aggregation sends its groups from one place: its session has one partition."""
        if bundle.aggregate is None:
            return self._session
        session: SparkSession = self._session.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "1")
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        return session

    def stop_one(self, name: str) -> None:
        query = self._queries.pop(name, None)
        if query is not None:
            query.stop()
        shutil.rmtree(self._folder / "checkpoints" / name, ignore_errors=True)

    def stop(self) -> None:
        with ThreadPoolExecutor(STARTING_AT_ONCE) as pool:
            list(pool.map(self.stop_one, list(self._queries)))

    def move(self, name: str, slot: Slot) -> None:
        """To another slot: on one that hosts bundles already it shares their executor."""
        self.stop_one(name)
        self.bundles[name] = replace(self.bundles[name], slot=slot)
        self.start_one(name)

    def failures(self) -> dict[str, str]:
        """Queries Spark has ended, and what it said."""
        return {
            name: str(query.exception() or "it ended without saying why")
            for name, query in self._queries.items()
            if not query.isActive
        }

    @property
    def hosting(self) -> dict[Slot, list[Bundle]]:
        return by_slot(list(self.bundles.values()))

    def executors(self) -> set[str]:
        """Those registered with the driver now."""
        context: Any = self._session.sparkContext._jsc.sc()
        return set(filter(None, context.getExecutorIds().mkString(",").split(",")))

    def release(self, executors: Sequence[str]) -> None:
        """End executors nobody needs any more, so that their slots are free. Spark has no public way to."""
        jvm: Any = self._session._jvm
        context: Any = self._session.sparkContext._jsc.sc()
        present = [name for name in executors if name in self.executors()]
        if present:
            context.schedulerBackend().killExecutors(jvm.PythonUtils.toSeq(present), True, False, True)


def forget_unplanned(checkpoint: Path) -> None:
    """Spark's file source notes a file before the batch that reads it is planned. A query that was stopped in between
    takes the file for read when it starts anew, and waits for others for ever: such notes are deleted."""
    planned = [int(entry.name) for entry in (checkpoint / "offsets").glob("[0-9]*")]
    for entry in (checkpoint / "sources" / "0").glob("[0-9]*"):
        if int(entry.name.partition(".")[0]) > max(planned, default=-1):
            entry.unlink()
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)


def _profile(slot: Slot, tasks: int, memory_mb: int) -> ResourceProfile:
    from pyspark.resource import (  # noqa: PLC0415 - Spark loads only when it is used
        ExecutorResourceRequests,
        ResourceProfileBuilder,
        TaskResourceRequests,
    )

    resource = resource_name(slot.node)
    executor = ExecutorResourceRequests().cores(tasks).memory(f"{memory_mb}m").resource(resource, 1)
    task = TaskResourceRequests().cpus(1).resource(resource, 1 / tasks)
    return ResourceProfileBuilder().require(executor).require(task).build
