"""The Spark session a run gets: its own, on any master, or one of the user's, which is left as it was."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.extras import missing_package
from penstock.base.files import temporary_folder
from penstock.cluster.contract import OWN, AppRequest, open_cluster
from penstock.report.listener import Listener, Progress
from penstock.runs.config import MIN_EXECUTOR_MB, RunConfig
from penstock.workloads.operators import services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from penstock.cluster.contract import ClusterManager, ExecutorSize
    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline


CLUSTER_MASTER = OWN
DEFAULT_EXECUTOR_MB = 1024
"""Spark's own default."""


def with_executor_memory(config: RunConfig, slot_memory_mb: float | None) -> RunConfig:
    """Return the options with the memory of executors: as given, else that of the plan's slots, else Spark's own
    default."""
    planned = DEFAULT_EXECUTOR_MB if slot_memory_mb is None else max(MIN_EXECUTOR_MB, int(slot_memory_mb))
    return replace(config, executor_memory_mb=config.executor_memory_mb or planned)


def is_on_this_machine(config: RunConfig) -> bool:
    """Whether the slots of a run share the cores of this machine: embedded, or on the cluster of
    `penstock cluster up`."""
    if config.is_local or (config.master or "").partition(":")[0] == CLUSTER_MASTER:
        return True
    master = str(config.master if config.session is None else _checked(config.session).sparkContext.master)
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
def spark_session(
    config: RunConfig,
    slots: int,
    log: Path,
    name: str,
    listener: Listener,
    places: Mapping[Slot, ExecutorSize] | None = None,
) -> Iterator[RunSession]:
    """A session for the run; one that is started here ends with the block. `places`: executors by slot, on a cluster
    whose Workers offer slots by name; without them Spark chooses."""
    if config.session is not None:
        yield RunSession(_checked(config.session))
        return
    listener.on_progress(Progress("starting Spark"))
    if find_spec("pyspark") is None:
        raise missing_package("pyspark", "running needs")
    with temporary_folder("spark") as folder:
        scratch = folder / "scratch"
        if config.is_local:
            started = _embedded(config, slots, log, name, scratch)
        else:
            started = _on_cluster(config, slots, log, name, scratch, places)
        try:
            yield started
        finally:
            if started.close is not None:
                started.close()


def local_by_default(config: RunConfig) -> bool:
    """Whether Spark looks for paths without a scheme on this machine's disks, or on a file system of Hadoop's."""
    from penstock.spark.session.hadoop import is_local_by_default  # noqa: PLC0415 - beside Spark

    return is_local_by_default(config.settings, None if config.session is None else _checked(config.session))


def _checked(session: Any) -> Any:
    try:
        from penstock.spark.session.user_session import checked_session  # noqa: PLC0415 - Spark loads only when it is used
    except ImportError as error:
        raise missing_package("pyspark", "running needs") from error
    return checked_session(session)


def _more(config: RunConfig) -> dict[str, str]:
    packages = {"spark.jars.packages": ",".join(config.packages)} if config.packages else {}
    return {**packages, **config.settings}


def _embedded(config: RunConfig, slots: int, log: Path, name: str, scratch: Path) -> RunSession:
    from penstock.spark.session.embedded import end_session, start_session  # noqa: PLC0415 - Spark loads when used

    if config.master is not None and not re.fullmatch(r"local(\[(\d+|\*)(,\s*\d+)?\])?", config.master):
        raise BadInputError(f"master '{config.master}': expected local, local[N] or local[*]")
    session = start_session(slots, log, name, settings=_more(config), scratch=scratch)
    return RunSession(session, close=lambda: end_session(session))


def _on_cluster(
    config: RunConfig, slots: int, log: Path, name: str, scratch: Path, places: Mapping[Slot, ExecutorSize] | None
) -> RunSession:
    from penstock.spark.internals.settings import PARTITIONS  # noqa: PLC0415 - Spark loads when used
    from penstock.spark.session.embedded import partitions_for  # noqa: PLC0415

    executor_memory_mb = config.executor_memory_mb or DEFAULT_EXECUTOR_MB
    cluster = cluster_of(config)
    app = cluster.session(
        AppRequest(
            name,
            executors=slots,
            pinned=places is not None,
            memory_mb=executor_memory_mb,
            settings={PARTITIONS: str(partitions_for(slots, can_grow=True)), **_more(config)},
            log=log,
            scratch=scratch,
            ship_code=not is_on_this_machine(config),
        )
    )
    try:
        if places is None:
            app.executors.wait_for(slots)
        else:
            app.executors.change_to(slots, places=places)
    except ClusterError as error:
        app.close()
        raise ClusterError(f"{error}; {_asked_memory(executor_memory_mb, places)}") from error
    return RunSession(app.spark, app.executors, app.close)


def _asked_memory(default_mb: int, places: Mapping[Slot, ExecutorSize] | None) -> str:
    asked = {size.memory_mb or default_mb for size in ({} if places is None else places).values()} or {default_mb}
    if len(asked) > 1:
        return f"they ask for {min(asked)} to {max(asked)} MB each"
    return f"each asks for {min(asked)} MB (executor_memory_mb=)"


def cluster_of(config: RunConfig) -> ClusterManager:
    """Return the cluster that the run is on."""
    return open_cluster(config.master, secret_file=None if config.secret_file is None else Path(config.secret_file))


# The services that code of reference tasks needs, while a pipeline runs.


def services_of(pipeline: Pipeline, listener: Listener) -> AbstractContextManager[Mapping[str, str]]:
    """Those of all its operators, and the environment their code finds them by."""
    return services_for({operator.model or name for name, operator in pipeline.operators.items()}, listener)


def services_for(models: Iterable[str], listener: Listener) -> AbstractContextManager[Mapping[str, str]]:
    """Those of the reference tasks that are named."""

    def building(rows: int, of: int) -> None:
        listener.on_progress(Progress(f"building the reference table, once: {rows:,} of {of:,} rows", rows, of))

    return services(set(models), given=os.environ, progress=building)
