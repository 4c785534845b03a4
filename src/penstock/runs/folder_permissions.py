"""Folders of runs are for their owner alone, also those that were there before."""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)


def close_to_others(folder: Path, own_file: str) -> None:
    """Let only its owner into a folder that may have been there before; `own_file` stands in those that are ours.

    One that holds other things too is left as it is, with a warning; so are those of root and of all.
    """
    try:
        status = folder.stat()
        if not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return
        entries = {entry.name for entry in folder.iterdir()}
        is_shared = status.st_uid != os.getuid() or bool(status.st_mode & stat.S_ISVTX)
        if is_shared or (entries and own_file not in entries):
            _LOG.warning("%s: other users may look into it; name a folder that is new, or chmod 700 it", folder)
        else:
            folder.chmod(0o700)
    except OSError as error:
        raise BadInputError(f"{folder}: cannot be used: {error.strerror or error}") from error
