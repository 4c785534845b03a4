"""`penstock.drain(...)`: a run finishes what is in flight and waits, or ends."""

from __future__ import annotations

from pathlib import Path

from penstock.clock import Stopwatch, pause
from penstock.errors import RunError
from penstock.jobs.placed_run import PATIENCE_SECONDS
from penstock.jobs.runs import is_fused, placed_or_found


def drain(folder: str | Path, *, stop: bool = False, patience: float = PATIENCE_SECONDS) -> float:
    """Ask a run to stop its sources and finish what is in flight; it then waits to be resumed, or ends (`stop`).

    A fused run ends with that; `resume` goes on with it. The seconds that took.
    """
    from penstock.spark.placed.run_folder import RunFolder  # noqa: PLC0415 - psutil belongs to the extra

    where = placed_or_found(folder)
    if isinstance(where, Path) and is_fused(where):
        return _drain_fused(where, patience)
    run = RunFolder(where)
    name = run.description.pipeline
    if run.held_by is None:
        raise RunError(f"{run.place}: nothing runs '{name}' now; penstock resume goes on with it")
    return float(run.ask("stop" if stop else "drain", patience)["seconds"])


def _drain_fused(where: Path, patience: float) -> float:
    from penstock.spark.fused.run_folder import FusedRunFolder  # noqa: PLC0415 - psutil belongs to the extra

    run, watch = FusedRunFolder(where), Stopwatch()
    run.ask("drain", patience)
    while run.is_conducted:
        if watch.seconds() > patience:
            raise RunError(f"{where}: did not end within {patience:g} s of being drained")
        pause(0.1)
    return watch.seconds()
