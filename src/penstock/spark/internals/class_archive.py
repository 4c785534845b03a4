"""Spark's classes as Java has them in memory, kept in a file: Java processes that find it start with half the work.

Java calls this class-data sharing. `make_archive` makes the archive; Masters, Workers, executors and sessions that
start later use it. An archive is of one Java and one Spark: where either has changed, or the class path is another one,
Java goes on without it, as it does where the file is not there.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path

from penstock.base.clock import now
from penstock.base.errors import BadInputError
from penstock.base.files import private_folder

SILENT = "-Xshare:auto -Xlog:disable"
"""An archive that does not fit is not used, and not complained of on standard output either."""
MOST_KEPT = 6
"""Each is of some 160 MB, and of one environment; those used last are kept."""
LEFT_SECONDS = 3600.0
MAKING_SECONDS = 60.0
"""How long Java may take to write it as it ends."""

_LOG = logging.getLogger(__name__)


def archive_file(java_home: Path, spark_home: Path, version: str) -> Path:
    """By what it is of; in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = ((Path(cache) if cache else Path.home() / ".cache") / "penstock" / "classes").absolute()
    of = hashlib.sha256(f"{java_home.resolve()}\n{spark_home}".encode()).hexdigest()[:16]
    return folder / f"spark-{version}-{of}.jsa"


def using(archive: Path) -> str:
    """Java's options; nothing where there is no archive. The file says when it was last used."""
    if not archive.is_file() or " " in str(archive):
        return ""
    with suppress(OSError):
        os.utime(archive)
    return f"-XX:SharedArchiveFile={archive} {SILENT}"


def making(archive: Path) -> tuple[str, Path | None]:
    """Java's options for one that is to make it, and the file it writes as it ends; nothing where that cannot be."""
    if archive.exists() or " " in str(archive):
        return "", None
    try:
        private_folder(archive.parent)
    except BadInputError as error:
        _LOG.info("no archive of Spark's classes: %s", error)
        return "", None
    for left in archive.parent.glob("*.new"):  # by a Java process that was killed as it wrote
        if now() - left.stat().st_mtime > LEFT_SECONDS:
            left.unlink(missing_ok=True)
    made = archive.with_name(f"{archive.stem}-{os.getpid()}.new")
    return f"-XX:ArchiveClassesAtExit={made} {SILENT}", made


def keep(made: Path, archive: Path) -> None:
    """Java has ended: what it wrote is whole, and found from now on."""
    if made.is_file():
        made.chmod(0o600)
        made.replace(archive)
        by_use = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in by_use[MOST_KEPT:]:
            old.unlink(missing_ok=True)
