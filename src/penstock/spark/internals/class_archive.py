"""An archive of Spark's classes as Java has them in memory: Java processes that use it start with half the work.

Java calls this class-data sharing. `make_archive` makes the archive; Masters, Workers, executors and sessions that
start later use it. An archive is of one Java and one Spark: if either has changed, or the class path is different, Java
continues without it, as it does if the file is missing.
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
"""Max seconds Java may take to write it as it ends."""

_LOG = logging.getLogger(__name__)


def archive_file(java_home: Path, spark_home: Path, version: str) -> Path:
    """Return the file of an archive, in the user's cache, by the versions it is for."""
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = ((Path(cache) if cache else Path.home() / ".cache") / "penstock" / "classes").absolute()
    of = hashlib.sha256(f"{java_home.resolve()}\n{spark_home}".encode()).hexdigest()[:16]
    return folder / f"spark-{version}-{of}.jsa"


def using(archive: Path) -> str:
    """Return Java's options; nothing if there is no archive. The time of the file shows its last use."""
    if not archive.is_file() or " " in str(archive):
        return ""
    with suppress(OSError):
        os.utime(archive)
    return f"-XX:SharedArchiveFile={archive} {SILENT}"


def making(archive: Path) -> tuple[str, Path | None]:
    """Return Java's options for a process that makes the archive, and the file it writes as it ends; nothing if that is
    impossible."""
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
    """Keep the archive of a Java process that has ended: its file is whole, and used from now on."""
    if made.is_file():
        made.chmod(0o600)
        made.replace(archive)
        by_use = sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in by_use[MOST_KEPT:]:
            old.unlink(missing_ok=True)
