"""A checkpoint on any file system pyarrow knows (S3, HDFS, ...). It need not be able to create a file only if it is
missing, but a listing must show every file written before it.

    commits/EPOCH-NUMBER-WRITER.json    each under a name of its own: none is overwritten
    claims/NUMBER-WRITER.json           the conductor from now on; the greatest claim counts

A conductor writes a commit, then looks for greater claims. A process that takes over writes its claim, then looks for
commits. Both write before they look, so at least one sees the other: either the new conductor continues after that
commit, or the old one finds that it has been replaced and publishes nothing. A commit that came too late has no effect:
those of greater claims come first.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.files import check, parse_json
from penstock.base.lease import RunLease
from penstock.base.text import is_whole
from penstock.connectors.checkpoint import (
    KEPT,
    FolderCheckpoint,
    NotWrittenError,
    ReplacedError,
    read_commit,
    take_over,
)
from penstock.connectors.storage import storage

if TYPE_CHECKING:
    from penstock.connectors.checkpoint import Checkpoint
    from penstock.connectors.commit import Commit
    from penstock.connectors.storage import Storage

COMMITS, CLAIMS, LEASE = "commits", "claims", "lease.json"


def checkpoint_at(place: str) -> Checkpoint:
    """`place` is a folder, or a URI such as s3://bucket/folder."""
    return UrlCheckpoint(place, storage(place)) if "://" in place else FolderCheckpoint(Path(place))


@dataclass(frozen=True, slots=True, order=True)
class _Claim:
    number: int
    writer: str


@dataclass(frozen=True, slots=True, order=True)
class _CommitFile:
    """Later ones are greater: those of a greater claim, then those of a later epoch."""

    claim: _Claim
    epoch: int

    @property
    def path(self) -> str:
        return f"{COMMITS}/{self.epoch:012d}-{self.claim.number:06d}-{self.claim.writer}.json"


class UrlCheckpoint:
    def __init__(self, place: str, store: Storage) -> None:
        self.place = place
        self._store = store

    def create(self) -> None:
        """Folders are made with the first file."""

    # Commits.

    def last(self) -> Commit | None:
        newest = max(self._commits(), default=None)
        if newest is None:
            return None
        return read_commit(_text(self._store.read(newest.path)), f"{self.place}/{newest.path}")

    def write(self, commit: Commit) -> None:
        file = _CommitFile(_Claim(commit.conductor, commit.writer), commit.epoch)
        self._write(file.path, commit.model_dump_json() + "\n")
        if max(self._claims(), default=file.claim) > file.claim:
            raise ReplacedError(f"{self.place}: another process conducts the run, since epoch {commit.epoch} at latest")

    def forget_old(self, epoch: int) -> None:
        for file in self._commits():
            if file.epoch <= epoch - KEPT:
                self._store.delete(file.path)

    def _commits(self) -> list[_CommitFile]:
        files = []
        for path in self._store.list(COMMITS):
            epoch, _, rest = Path(path).stem.partition("-")
            number, _, writer = rest.partition("-")
            if path.endswith(".json") and is_whole(epoch) and is_whole(number):
                files.append(_CommitFile(_Claim(int(number), writer), int(epoch)))
        return files

    # Lease of the conductor.

    @property
    def lease(self) -> RunLease | None:
        try:
            where = f"{self.place}/{LEASE}"
            return check(RunLease, parse_json(_text(self._store.read(LEASE)), where), where)
        except (BadInputError, OSError):
            return None

    def sign(self, lease: RunLease) -> None:
        try:
            self._write(LEASE, lease.model_dump_json() + "\n")
        except NotWrittenError as error:
            raise BadInputError(str(error)) from error

    def take_over(self, commit: Commit, plan: str) -> Commit:
        """Go on behind the last commit there is once the claim is made: `commit` is that of a run that has none."""
        claim = self._claimed(commit.conductor + 1)
        last = self.last()
        taken = take_over(commit if last is None else last, plan if last is None else last.plan)
        taken = taken.model_copy(update={"conductor": claim.number, "writer": claim.writer})
        self.write(taken)
        return taken

    def _claimed(self, number: int) -> _Claim:
        """Return a claim whose number no other process has that could still act by it."""
        writer = uuid.uuid4().hex
        number = max([number, *(claim.number + 1 for claim in self._claims())])
        while True:
            own = _Claim(number, writer)
            self._write(f"{CLAIMS}/{number:06d}-{writer}.json", "{}\n")
            others = [claim for claim in self._claims() if claim.writer != writer and claim.number >= number]
            if any(claim > own for claim in others):
                raise ReplacedError(f"{self.place}: another process takes the run over at this moment")
            if not others:
                return own
            number += 1

    def _claims(self) -> list[_Claim]:
        claims = []
        for path in self._store.list(CLAIMS):
            number, _, writer = Path(path).stem.partition("-")
            if path.endswith(".json") and is_whole(number):
                claims.append(_Claim(int(number), writer))
        return claims

    def _write(self, path: str, text: str) -> None:
        try:
            self._store.write(path, lambda file: file.write(text.encode()))
        except OSError as error:
            raise NotWrittenError(f"{self.place}/{path}: cannot be written: {error.strerror or error}") from error


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
