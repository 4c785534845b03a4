"""Settings of Spark that its documentation does not have, or that name its private classes.

The way between Java and its Python workers is one: Spark's default are ports. Any local user may connect to one, and a
worker process is started before a secret is asked for. A Unix socket asks for no secret at all; its file, or the folder
it is in, lets other users in or does not.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.base.files import private_folder
from penstock.spark.internals.declarations import touches

PARTITIONS = "spark.sql.shuffle.partitions"
"""Public, and kept in checkpoints."""
STREAMING = "org.apache.spark.sql.execution.streaming"
FIRST_WITH_PACKAGES = (4, 1)
"""Version since which the classes of streaming are in packages by subject, and workers have Unix sockets."""
ENABLED, FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
MAX_FOLDER_BYTES = 60
"""Addresses of Unix sockets have 107 bytes at most, and names of Spark's have 43."""
_STATUS = Path("/proc/self/status")


def release_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


@touches(
    f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager (before 4.1 without `checkpointing`)",
    "The default of local disks copies by Hadoop's FileContext, which takes several times as long as a rename.",
)
def checkpoint_settings(version: str) -> dict[str, str]:
    """Checkpoints on a local disk: a rename is enough, and several times faster than the default."""
    package = f"{STREAMING}.checkpointing" if release_of(version) >= FIRST_WITH_PACKAGES else STREAMING
    return {"spark.sql.streaming.checkpointFileManagerClass": f"{package}.FileSystemBasedCheckpointFileManager"}


@touches(
    "spark.python.daemon.module, and the module `pyspark.daemon` that it replaces",
    "Workers forked from Spark's own daemon import Arrow and this package anew, a second of CPU each.",
)
def daemon_settings(module: str) -> dict[str, str]:
    """Python workers are forked from a process that runs `module`."""
    return {"spark.python.daemon.module": module}


@touches(
    "spark.python.unix.domain.socket.enabled and .dir",
    "The settings are not documented; ports let any local user start worker processes.",
    tried=("4.3.0",),
)
def socket_settings(folder: Path | None) -> dict[str, str]:
    """Unix sockets in `folder`, which is for its owner alone, or in the system's temporary folder if the umask keeps
    all others from connecting there; else ports, as by default."""
    if folder is not None and len(os.fsencode(folder)) <= MAX_FOLDER_BYTES:
        return {ENABLED: "true", FOLDER: str(private_folder(folder))}
    return {ENABLED: "true"} if keeps_others_out(_STATUS) else {}


def keeps_others_out(status: Path) -> bool:
    """Return whether new files have no write permission for others, by the umask in a file like /proc/PID/status."""
    try:
        lines = status.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return False
    masks = [int(line.partition(":")[2], 8) for line in lines if line.startswith("Umask:")]
    return bool(masks) and masks[0] & 0o022 == 0o022
