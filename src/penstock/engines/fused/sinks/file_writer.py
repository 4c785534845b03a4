"""Files of a sink, written by Spark and put in place whole: a folder that any reader may read at any time.

Spark writes a batch into a folder of its own below the sink's, whose name (it begins with `_`) readers pass over; then
its files are renamed to where they belong, under names made of the run and the batch. A batch that is run again removes
what it left before. Hadoop's file systems do this, so that it works wherever Spark can write. No two processes share a
staging folder: an executor that outlives its driver may still write to that driver's.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.spark.internals.error_messages import first_line, in_one_line, java_error
from penstock.spark.internals.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

STAGING = "_penstock"


def plain_owner(owner: str) -> str:
    """An owner with what is safe in the name of a file; as earlier versions wrote it, and several owners may share."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", owner)


def owner_in_names(owner: str) -> str:
    """An owner as names of files have it: no other owner is written like that."""
    return f"{plain_owner(owner)}-{sha256(owner.encode()).hexdigest()[:8]}"


def left_by(owners: Sequence[str], batch: int | None) -> re.Pattern[str]:
    """The beginning of the names of all files that some writers left of a batch; None: of any batch. All sinks of a run
    write the same batch at the same time, so that what is left of it under a shared name is nobody's any more."""
    number = r"\d{9,}" if batch is None else f"{batch:09d}"
    return re.compile(rf"part-({'|'.join(map(re.escape, owners))})-{number}-")


def begin_like(owners: Sequence[str], batch: int | None) -> str:
    """Hadoop's pattern for the names of files that some writers left of a batch; None: of any batch."""
    number = "" if batch is None else f"{batch:09d}-"
    return f"part-{{{','.join(owners)}}}-{number}*"


def batches_in(listing: str, owners: Sequence[str]) -> set[int]:
    """The numbers of all batches of which some writers left a file that is named in a text."""
    return {int(number) for number in re.findall(rf"part-(?:{'|'.join(map(re.escape, owners))})-(\d{{9,}})-", listing)}


def in_pattern(path: str) -> str:
    """A path as a part of a pattern of Hadoop's, in which it stands for itself."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


class FileWriter:
    exactly_once = True

    def __init__(
        self,
        session: SparkSession,
        who: str,
        format: str,  # noqa: A002 - Spark's word
        options: Mapping[str, str],
        owner: str,
        *,
        replaces_all: bool,
    ) -> None:
        given = dict(options)
        self._who = who
        self._path = given.pop("path", "")
        if not self._path:
            raise BadInputError(f"{who}: format {format} needs options: path")
        self._partitioned_by = [name.strip() for name in given.pop("partitionBy", "").split(",") if name.strip()]
        self._format = format
        self._options = given
        self._owner = owner_in_names(owner)
        self._earlier_owner = plain_owner(owner)
        self._owners = (self._owner, self._earlier_owner)
        self._replaces_all = replaces_all
        self._process = secrets.token_hex(4)
        self._left: set[int] | None = None
        """Batches that were there when this process wrote its first; None: it wrote none yet."""
        self._last = -1
        """The last batch this process began to put in place."""
        self._files = HadoopFiles(session)

    def prepare(self) -> None:
        """Makes the folder, and clears what an attempt before left half done."""
        try:
            made = self._files.make_folder(self._path)
            for staging in (self._staging, self._staging_of(self._earlier_owner)):
                self._files.delete(staging)
            # the folder may be there and not ours to write to
            probe = f"{self._staging}-probe"
            self._files.touch(probe)
            self._files.delete(probe)
        except java_error() as error:
            reason = first_line(getattr(error, "java_exception", error))
            raise BadInputError(f"{self._who}: '{self._path}' cannot be written: {reason}") from error
        if not made:
            raise BadInputError(f"{self._who}: '{self._path}' cannot be written: no folder can be made there")

    def close(self) -> None:
        """Nothing of its own stays behind."""
        self._files.delete(self._staging)

    def write(self, frame: DataFrame, batch: int) -> None:
        staged = f"{self._staging}/{batch:09d}-{self._process}"
        writer = frame.write.format(self._format).options(**self._options).mode("overwrite")
        if self._partitioned_by:
            writer = writer.partitionBy(*self._partitioned_by)
        with in_one_line(self._who):
            writer.save(staged)
            self._put_in_place(staged, batch)

    @property
    def _staging(self) -> str:
        return self._staging_of(self._owner)

    def _staging_of(self, owner: str) -> str:
        return f"{self._path.rstrip('/')}/{STAGING}-{owner}"

    def _put_in_place(self, staged: str, batch: int) -> None:
        mine = f"part-{self._owner}-{batch:09d}-"
        if self._replaces_all:
            self._remove_earlier(None)
        elif self._may_be_there(batch):
            self._remove_earlier(batch)
        self._last = max(self._last, batch)
        for number, (path, folder, name) in enumerate(self._data_files(staged)):
            ending = name.partition(".")[2]
            target = f"{self._path.rstrip('/')}{folder}"
            self._files.make_folder(target)
            if not self._files.rename(path, target, f"{mine}{number:05d}.{ending}"):
                raise BadInputError(f"{self._who}: {path} could not be put in place")
        self._files.delete(staged)

    def _may_be_there(self, batch: int) -> bool:
        """Whether something of a batch may be left from an attempt before, of this process or of another. To look for
        every batch would take longer with every file the run has written: so the folder is looked at once."""
        if self._left is None:
            self._left = batches_in(self._files.text_of_matching(self._pattern(None)), self._owners)
        return batch in self._left or batch <= self._last

    def _remove_earlier(self, batch: int | None) -> None:
        """What this sink left of a batch (None: of all), also under the names of earlier versions. Java looks for names
        that begin like that, of which others may be somebody else's; each is looked at."""
        left = left_by(self._owners, batch)
        for path, name in self._files.matching(self._pattern(batch)):
            if left.match(name):
                self._files.delete(path)

    def _pattern(self, batch: int | None) -> str:
        names = begin_like(self._owners, batch)
        return "/".join([in_pattern(self._path.rstrip("/")), *["*"] * len(self._partitioned_by), names])

    def _data_files(self, staged: str) -> Iterator[tuple[str, str, str]]:
        """Every file Spark wrote, its folder below the sink's own (partitions), and its name."""
        for path, folder, name, size in self._files.files_below(staged):
            if not name.startswith(("_", ".")) and size:
                yield path, folder, name
