"""The Spark session a run gets: its own, on any master, or one of the user's, which is left as it was."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.files import temporary_folder
from penstock.cluster.contract import AppRequest
from penstock.cluster.registry import OWN, open_cluster
from penstock.report.listener import Listener, Progress
from penstock.workloads.operators import services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline


CLUSTER_MASTER = OWN
DEFAULT_EXECUTOR_MB = 1024
"""Spark's own default."""
LEAST_EXECUTOR_MB = 512
"""Spark starts no executor with less than 450."""
NEEDS_SPARK = "running needs pyspark; install it with: pip install 'penstock[spark]'"


@dataclass(frozen=True)
class SparkOptions:
    """Where to run, and what Spark is told beyond that. `session`: one of the user's, instead of all else."""

    master: str | None = None
    packages: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    secret_file: Path | None = None
    executor_memory_mb: int | None = None
    """Of every executor on a cluster; None: that of the plan's slots, where there is a plan."""
    session: Any = None
    places: tuple[Slot, ...] | None = None
    """Slots by name, on a cluster whose Workers offer those; without, Spark chooses."""

    def __post_init__(self) -> None:
        if self.executor_memory_mb is not None and self.executor_memory_mb < LEAST_EXECUTOR_MB:
            raise BadInputError(
                f"executor_memory_mb=: expected at least {LEAST_EXECUTOR_MB} MB, found {self.executor_memory_mb}"
            )

    def on_slots_of(self, slot_memory_mb: float | None) -> SparkOptions:
        """With the memory of executors: as asked for, else that of the plan's slots, else Spark's own default."""
        planned = DEFAULT_EXECUTOR_MB if slot_memory_mb is None else max(LEAST_EXECUTOR_MB, int(slot_memory_mb))
        return replace(self, executor_memory_mb=self.executor_memory_mb or planned)

    @property
    def is_local(self) -> bool:
        return self.session is None and (self.master is None or self.master.startswith("local"))

    @property
    def is_on_this_machine(self) -> bool:
        """Whether its slots share the cores of this machine: embedded, or on the cluster of `penstock cluster up`."""
        if self.is_local or self.master == CLUSTER_MASTER:
            return True
        master = str(self.master if self.session is None else _checked(self.session).sparkContext.master)
        return master.startswith("local") or master == _master_here()


@dataclass(frozen=True)
class RunSession:
    """`executors`: where slots can be added and let go while a query runs."""

    session: Any
    executors: Any = None
    close: Callable[[], None] | None = None
    """Ends the session; None leaves it, as one of the user's."""


def _master_here() -> str | None:
    """Return the master of the cluster of `penstock cluster up`; None if there is none."""
    try:
        return open_cluster().master
    except ClusterError:
        return None


def local_slots(master: str | None) -> int | None:
    """How many `local[N]` names; None: it leaves that open, or is no local master."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master or "")
    if match is None or match[1] in {"*", None}:
        return 1 if master == "local" else None
    return int(match[1])


@contextmanager
def spark_session(options: SparkOptions, slots: int, log: Path, name: str, listener: Listener) -> Iterator[RunSession]:
    """What is started here ends with the block."""
    if options.session is not None:
        yield RunSession(_checked(options.session))
        return
    listener.on_progress(Progress("starting Spark"))
    if find_spec("pyspark") is None:
        raise BadInputError(NEEDS_SPARK)
    with temporary_folder("spark") as folder:
        start = _embedded if options.is_local else _on_cluster
        started = start(options, slots, log, name, folder / "scratch")
        try:
            yield started
        finally:
            if started.close is not None:
                started.close()


def local_by_default(options: SparkOptions) -> bool:
    """Whether Spark looks for paths without a scheme on this machine's disks, or on a file system of Hadoop's."""
    from penstock.spark.session.hadoop import is_local_by_default  # noqa: PLC0415 - beside Spark

    return is_local_by_default(options.settings, None if options.session is None else _checked(options.session))


def _checked(session: Any) -> Any:
    try:
        from penstock.spark.session.user_session import checked_session  # noqa: PLC0415 - Spark loads only when it is used
    except ImportError as error:
        raise BadInputError(NEEDS_SPARK) from error
    return checked_session(session)


def _more(options: SparkOptions) -> dict[str, str]:
    packages = {"spark.jars.packages": ",".join(options.packages)} if options.packages else {}
    return {**packages, **options.settings}


def _embedded(options: SparkOptions, slots: int, log: Path, name: str, scratch: Path) -> RunSession:
    from penstock.spark.session.embedded import end_session, start_session  # noqa: PLC0415 - Spark loads when used

    if options.master is not None and not re.fullmatch(r"local(\[(\d+|\*)(,\s*\d+)?\])?", options.master):
        raise BadInputError(f"master '{options.master}': expected local, local[N] or local[*]")
    session = start_session(slots, log, name, settings=_more(options), scratch=scratch)
    return RunSession(session, close=lambda: end_session(session))


def _on_cluster(options: SparkOptions, slots: int, log: Path, name: str, scratch: Path) -> RunSession:
    from penstock.spark.internals.settings import PARTITIONS  # noqa: PLC0415 - Spark loads when used
    from penstock.spark.session.embedded import partitions_for  # noqa: PLC0415

    executor_memory_mb = options.executor_memory_mb or DEFAULT_EXECUTOR_MB
    cluster = open_cluster(options.master, secret_file=options.secret_file)
    app = cluster.session(
        AppRequest(
            name,
            executors=slots,
            pinned=options.places is not None,
            memory_mb=executor_memory_mb,
            settings={PARTITIONS: str(partitions_for(slots, can_grow=True)), **_more(options)},
            log=log,
            scratch=scratch,
            ship_code=not options.is_on_this_machine,
        )
    )
    try:
        if options.places is None:
            app.executors.wait_for(slots)
        else:
            app.executors.change_to(slots, places=options.places)
    except ClusterError as error:
        app.close()
        raise ClusterError(f"{error}; each asks for {executor_memory_mb} MB (executor_memory_mb=)") from error
    return RunSession(app.spark, app.executors, app.close)


# The services that code of reference tasks needs, while a pipeline runs.


def services_of(pipeline: Pipeline, listener: Listener) -> AbstractContextManager[Mapping[str, str]]:
    """Those of all its operators, and the environment their code finds them by."""
    return services_for({operator.model or name for name, operator in pipeline.operators.items()}, listener)


def services_for(models: Iterable[str], listener: Listener) -> AbstractContextManager[Mapping[str, str]]:
    """Those of the reference tasks that are named."""

    def building(rows: int, of: int) -> None:
        listener.on_progress(Progress(f"building the reference table, once: {rows:,} of {of:,} rows", rows, of))

    return services(set(models), given=os.environ, progress=building)
