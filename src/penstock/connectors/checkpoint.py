"""The checkpoint: commits in order, each created once and for all.

In a folder a commit is a file named after its epoch. It gets its name when it is whole and on disk. Creating it fails
if it exists: so one of two conductors finds that it has been replaced, whatever their clocks show.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.base.errors import BadInputError, PenstockError
from penstock.base.files import check, parse_json, read_text, to_disk, write_text
from penstock.base.lease import RunLease
from penstock.base.text import is_whole
from penstock.connectors.commit import VERSION, Commit

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = 3
"""Commits that are kept: the last one counts, those before it are for people."""


class ReplacedError(PenstockError):
    """Another process has written what this one was about to."""


class NotWrittenError(PenstockError):
    """The disk would not take it; nothing has changed."""


class Checkpoint(Protocol):
    """The commits of one run and who conducts it, wherever they are kept."""

    @property
    def place(self) -> str:
        """A folder, or a URI: what else lasts with the run (states, audits) is kept there too."""

    def create(self) -> None: ...

    def last(self) -> Commit | None:
        """The newest commit; a file that is no commit is an error that names it."""

    def write(self, commit: Commit) -> None:
        """Create the commit of an epoch, durably. Written again by the same process, it is the same. Raise
        ReplacedError if another process conducts the run, NotWrittenError if nothing has changed."""

    def forget_old(self, epoch: int) -> None:
        """Commits long before `epoch` are deleted."""

    @property
    def lease(self) -> RunLease | None:
        """Return the lease if it can be read. One that cannot is free: the commits decide."""

    def sign(self, lease: RunLease) -> None: ...

    def take_over(self, commit: Commit, plan: str) -> Commit:
        """Continue after `commit` under a new number, so that the former conductor cannot commit any more."""


def read_commit(text: str, where: str) -> Commit:
    document = parse_json(text, where)
    if isinstance(document, dict) and document.get("version", VERSION) != VERSION:
        raise BadInputError(f"{where}: written by another version of Penstock ({document['version']!r})")
    return check(Commit, document, where)


def take_over(commit: Commit, plan: str) -> Commit:
    """The next commit, by another process. It covers nothing new, but names what may not be visible yet if the writer
    of `commit` died."""
    return commit.model_copy(
        update={
            "conductor": commit.conductor + 1,
            "writer": uuid.uuid4().hex,
            "epoch": commit.epoch + 1,
            "plan": plan,
        }
    )


class FolderCheckpoint:
    """Commits in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self._commits = folder / "commits"
        self._lease = folder / "lease.json"

    def create(self) -> None:
        self._commits.mkdir(mode=0o700, parents=True, exist_ok=True)

    # Commits.

    def last(self) -> Commit | None:
        path = max(self._commits.glob("*.json"), key=_epoch, default=None)
        if path is None:
            return None
        return read_commit(read_text(path), str(path))

    def write(self, commit: Commit) -> None:
        text = commit.model_dump_json() + "\n"
        path = self._path(commit.epoch)
        try:
            with _whole_file(self._commits, text) as temporary:
                os.link(temporary, path)
            to_disk(self._commits)
        except FileExistsError:
            if path.read_bytes() != text.encode():
                raise ReplacedError(f"{path}: epoch {commit.epoch} was committed by another process") from None
        except OSError as error:
            raise NotWrittenError(f"{path}: cannot be written: {error.strerror or error}") from error

    def forget_old(self, epoch: int) -> None:
        for path in self._commits.glob("*.json"):
            if _epoch(path) <= epoch - KEPT:
                path.unlink(missing_ok=True)

    def _path(self, epoch: int) -> Path:
        return self._commits / f"{epoch:012d}.json"

    # Lease of the conductor.

    @property
    def lease(self) -> RunLease | None:
        try:
            return check(RunLease, parse_json(read_text(self._lease), str(self._lease)), str(self._lease))
        except BadInputError:
            return None

    def sign(self, lease: RunLease) -> None:
        write_text(self._lease, lease.model_dump_json() + "\n")

    def take_over(self, commit: Commit, plan: str) -> Commit:
        """Take the epoch after `commit` at once, so that the former conductor cannot commit it."""
        taken = take_over(commit, plan)
        self.write(taken)
        return taken


def _epoch(path: Path) -> int:
    return int(path.stem) if is_whole(path.stem) else -1


@contextlib.contextmanager
def _whole_file(folder: Path, text: str) -> Iterator[Path]:
    """A temporary file with `text`, on disk, that is gone afterwards (under this name)."""
    handle, name = tempfile.mkstemp(prefix=".commit-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
