"""Files as Hadoop sees them, by path or URI of any scheme that Spark can write to. Executors may be elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from penstock.base.errors import RunFailedError
from penstock.spark.internals.declarations import touches
from penstock.spark.internals.java import hadoop_configuration, java_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@touches(
    "`SparkContext._jvm`: org.apache.hadoop.fs, org.apache.commons.io.IOUtils, scala.runtime.ScalaRunTime",
    "Spark writes to Hadoop's file systems and has no API to list, rename and delete there.",
)
class HadoopFiles:
    def __init__(self, session: SparkSession) -> None:
        self._java = java_classes(session)
        self._configuration = hadoop_configuration(session)

    def exists(self, place: str) -> bool:
        return bool(self._system(place).exists(self._at(place)))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; none if there is no folder."""
        if not self.exists(folder):
            return []
        return [str(status.getPath().getName()) for status in self._system(folder).listStatus(self._at(folder))]

    def read(self, place: str) -> str | None:
        """Return the text of a file; None if there is none."""
        if not self.exists(place):
            return None
        stream = self._system(place).open(self._at(place))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, place: str, text: str) -> None:
        """Write a file that is not there yet, whole or not at all."""
        folder, _, name = place.rpartition("/")
        beside, system = self._at(f"{folder}/.{name}.penstock"), self._system(place)
        stream = system.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not system.rename(beside, self._at(place)):
            raise RunFailedError(f"{place}: could not be written")

    def touch(self, place: str) -> None:
        """Write an empty file."""
        self._system(place).create(self._at(place), True).close()

    def delete(self, place: str) -> None:
        """Delete a file, or a folder with all that is in it, if it is there."""
        self._system(place).delete(self._at(place), True)

    def make_folder(self, place: str) -> bool:
        """Make a folder; return whether it is there then."""
        return bool(self._system(place).mkdirs(self._at(place)))

    def rename(self, place: str, folder: str, name: str) -> bool:
        """Move a file into a folder, under a name; return whether it was moved."""
        target = self._java.org.apache.hadoop.fs.Path(self._at(folder), name)
        return bool(self._system(folder).rename(self._at(place), target))

    def matching(self, pattern: str) -> Iterator[tuple[str, str]]:
        """Yield path and name of every file whose path matches a pattern of Hadoop's."""
        for status in self._system(pattern).globStatus(self._at(pattern)) or []:
            yield str(status.getPath()), str(status.getPath().getName())

    def text_of_matching(self, pattern: str) -> str:
        """Return one text with the paths of all files that match. Asking for each of thousands takes a minute."""
        found = self._system(pattern).globStatus(self._at(pattern))
        return str(self._java.scala.runtime.ScalaRunTime.stringOf(found))

    def files_below(self, folder: str) -> Iterator[tuple[str, str, str, int]]:
        """Yield path, folder below `folder`, name and size of every file in it and in its subfolders."""
        system = self._system(folder)
        root = system.makeQualified(self._at(folder)).toUri().getPath()
        listing = system.listFiles(self._at(folder), True)
        while listing.hasNext():
            status = listing.next()
            path = status.getPath()
            below = path.getParent().toUri().getPath()[len(root) :]
            yield str(path), str(below), str(path.getName()), int(status.getLen())

    @contextmanager
    def on_this_machine(self, folder: str, ending: str) -> Iterator[list[Path]]:
        """The files of a folder, in the order of their names, for code that knows nothing of Hadoop. Those of another
        file system are copied, for as long as the block lasts."""
        system = self._system(folder)
        paths = [status.getPath() for status in system.listStatus(self._at(folder))]
        paths = sorted((path for path in paths if path.getName().endswith(ending)), key=lambda path: path.getName())
        # Hadoop's text of a path is no URI: blanks and percent signs stand in it as they are
        if all(path.toUri().getScheme() == "file" for path in paths):
            yield [Path(path.toUri().getPath()) for path in paths]
            return
        with TemporaryDirectory(prefix="penstock-") as copies:
            local = [Path(copies) / path.getName() for path in paths]
            for path, copy in zip(paths, local, strict=True):
                system.copyToLocalFile(False, path, self._at(f"file://{copy}"), True)
            yield local

    def _at(self, place: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(place)

    def _system(self, place: str) -> Any:
        return self._at(place).getFileSystem(self._configuration)
