"""`penstock.rescale(...)`: more or fewer slots for a run, while it goes on."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import BadInputError, RunError
from penstock.jobs.runs import is_fused, placed_or_found

PATIENCE_SECONDS = 90.0


def rescale(run: str | Path, slots: int, *, patience: float = PATIENCE_SECONDS) -> float:
    """Ask a fused run on a cluster for other executors; its query is not restarted. A placed run is planned anew, by
    its own policies, for so many slots. The seconds that took.

    `run` is its folder, or the name that `runs` shows.
    """
    from penstock.spark.fused.run_folder import FusedRunFolder  # noqa: PLC0415 - psutil belongs to the extra
    from penstock.spark.placed.run_folder import RunFolder  # noqa: PLC0415

    if slots < 1:
        raise BadInputError(f"slots=: expected at least 1, found {slots}")
    folder = placed_or_found(run)
    if isinstance(folder, Path) and is_fused(folder):
        return float(FusedRunFolder(folder).ask("rescale", patience, slots=slots)["seconds"])
    placed = RunFolder(folder)
    if placed.held_by is None:
        raise RunError(f"{folder}: nothing runs '{placed.description.pipeline}' now; penstock resume goes on with it")
    return float(placed.ask("rescale", patience, slots=slots)["seconds"])
