"""`penstock controller repair`: the store of the controller of this machine, or another one by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.control.store.repair import StoreRepair


def repair_store(store: str | None = None, *, dry_run: bool = False, folder: str | Path | None = None) -> StoreRepair:
    """Without a `store`, that of the controller that was last started in the state folder. No controller can be started
    there meanwhile."""
    from penstock.control.store.repair import repair  # noqa: PLC0415 - needs the extra `control`
    from penstock.files import read_value  # noqa: PLC0415
    from penstock.service.settings import (  # noqa: PLC0415
        SETTINGS,
        ServiceSettings,
        controller_folder,
        own_store_url,
    )
    from penstock.spark.standalone.state import locked, state_folder  # noqa: PLC0415

    base = state_folder(folder)
    with locked(base):
        own = controller_folder(base)
        if store is None and (own / SETTINGS).exists():
            store = read_value(ServiceSettings, own / SETTINGS).store
        return repair(store or own_store_url(own), dry_run=dry_run)
