"""`penstock.down(...)`: ends what `penstock.up(...)` started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def down(folder: str | Path | None = None) -> str | None:
    """The address of the controller that was ended; None where none ran. Drivers and the cluster end with it; its store
    and what pipelines have committed stay, for the next `up`."""
    from penstock.service.local import stop_controller  # noqa: PLC0415 - needs the extra `control`
    from penstock.spark.standalone.cluster import cluster_down  # noqa: PLC0415 - needs the extra `spark`

    ended = stop_controller(folder)
    cluster_down(folder)
    return ended
