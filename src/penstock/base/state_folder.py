"""The folder in which a user's cluster and controller on this machine keep their state."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.files import private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


def state_folder(folder: str | Path | None) -> Path:
    """Return the folder given, that of PENSTOCK_STATE, or one in the user's cache."""
    if folder is not None:
        return Path(folder).absolute()
    if configured := os.environ.get("PENSTOCK_STATE"):
        return Path(configured).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return ((Path(cache) if cache else Path.home() / ".cache") / "penstock" / "cluster").absolute()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one command at a time start or end things in a folder; the lock goes with the process that holds it."""
    try:
        private_folder(folder)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadInputError(f"{folder}: cannot be used: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ClusterError(f"another command is starting or ending the cluster of {folder}; wait for it") from error
    try:
        yield
    finally:
        os.close(handle)
