"""A folder of this user's in the system's temporary folder, where anybody may have made one of that name before."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from stat import S_IRWXG, S_IRWXO

from penstock.errors import BadInputError


def user_folder(kind: str) -> Path:
    """Return `penstock-KIND-UID`, made if it is missing.

    Raise BadInputError if it is a link, of another user or open to others: files in it could be theirs."""
    path = Path(tempfile.gettempdir()) / f"penstock-{kind}-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be used: {error.strerror or error}; remove it or set TMPDIR") from error
    try:
        status = os.fstat(handle)
    finally:
        os.close(handle)
    if status.st_uid != os.getuid():
        raise BadInputError(f"{path}: belongs to another user; set TMPDIR to a folder of your own")
    if status.st_mode & (S_IRWXG | S_IRWXO):
        raise BadInputError(f"{path}: open to other users; remove it, or set TMPDIR to a folder of your own")
    return path
