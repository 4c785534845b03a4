"""The way between Java and its Python workers.

Spark's default are ports: any local user may connect to one, and a worker process is started before a secret is asked
for. A Unix socket asks for no secret at all; its file, or the folder it is in, lets other users in or does not.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.base.files import private_folder

ENABLED, FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
MAX_FOLDER_BYTES = 60
"""Addresses of Unix sockets have 107 bytes at most, and names of Spark's have 43."""
_STATUS = Path("/proc/self/status")


def socket_settings(folder: Path | None) -> dict[str, str]:
    """Unix sockets in `folder`, which is for its owner alone, or in the system's temporary folder if the umask keeps
    all others from connecting there; else ports, as by default."""
    if folder is not None and len(os.fsencode(folder)) <= MAX_FOLDER_BYTES:
        return {ENABLED: "true", FOLDER: str(private_folder(folder))}
    return {ENABLED: "true"} if keeps_others_out(_STATUS) else {}


def keeps_others_out(status: Path) -> bool:
    """Whether what is made has no permission to write for others, by the umask in a file as /proc/PID/status."""
    try:
        lines = status.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return False
    masks = [int(line.partition(":")[2], 8) for line in lines if line.startswith("Umask:")]
    return bool(masks) and masks[0] & 0o022 == 0o022
