"""The files of a run in object storage, as a folder on the machine of the process that conducts it.

Sources and audits work on files. If the folder of a run is a URI, the conductor gets a private copy of them:

    fetch ──► the conductor writes files ──► save (after each batch, before Spark commits it) ──► save, remove

Only files that changed since the last `save` are written. A file is removed from the storage after those that replace
it are written, so a conductor on another machine never finds fewer rows in them than were committed.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from penstock.base.files import private_folder
from penstock.base.text import is_whole

if TYPE_CHECKING:
    from penstock.connectors.storage import Storage

FILES = "files"
SCRATCH = frozenset({"crumbs"})
"""Folders of the running process alone."""
LOGS = frozenset({"log", "java.log"})
"""Files that grow all the time: they are written when the run is released."""


class FolderCopy:
    """A copy in `folder` of the files below `files/` in the storage."""

    def __init__(self, store: Storage, folder: Path) -> None:
        self._store = store
        self.folder = folder
        self._saved: dict[str, tuple[int, int]] = {}

    def fetch(self) -> None:
        """Replace the copy by what is in the storage, and remove copies of processes that died."""
        shutil.rmtree(self.folder, ignore_errors=True)
        private_folder(self.folder)
        for other in self.folder.parent.iterdir():
            process = other.name.split("-")[1:2]
            if process and is_whole(process[0]) and not _is_alive(int(process[0])):
                shutil.rmtree(other, ignore_errors=True)
        for path in self._store.list_all(FILES):
            target = self.folder / Path(path).relative_to(FILES)
            if target.name in LOGS:
                continue
            private_folder(target.parent)
            target.write_bytes(self._store.read(path))
        self._saved = self._present()

    def save(self, *, logs: bool = False) -> None:
        """Write the files that changed to the storage, then remove those that are gone."""
        present = self._present(logs=logs)
        for path, known in present.items():
            if self._saved.get(path) == known:
                continue
            try:
                content = (self.folder / path).read_bytes()
            except FileNotFoundError:
                continue  # removed meanwhile: the next save removes it from the storage
            self._store.write(f"{FILES}/{path}", partial(_write_into, content))
            self._saved[path] = known
        for path in [path for path in self._saved if path not in present]:
            self._store.delete(f"{FILES}/{path}")
            del self._saved[path]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _present(self, *, logs: bool = False) -> dict[str, tuple[int, int]]:
        """Size and time of the last change of each file, by its path in the folder."""
        present = {}
        for file in sorted(self.folder.rglob("*")):
            path = file.relative_to(self.folder)
            if path.parts[0] in SCRATCH or file.name.startswith("._") or (not logs and str(path) in LOGS):
                continue
            try:
                status = file.stat()
            except FileNotFoundError:
                continue
            if file.is_file():
                present[str(path)] = (status.st_size, status.st_mtime_ns)
        return present


def _write_into(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
