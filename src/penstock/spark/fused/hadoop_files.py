"""Files as Hadoop sees them: beside a checkpoint, wherever that is. Executors may be elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from penstock.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class HadoopFiles:
    """By path or URI, of any scheme Spark can write to."""

    def __init__(self, session: SparkSession) -> None:
        self._java: Any = session.sparkContext._jvm
        self._configuration = session.sparkContext._jsc.hadoopConfiguration()

    def exists(self, place: str) -> bool:
        return bool(self._system(place).exists(self._at(place)))

    def read(self, place: str) -> str | None:
        """None: there is no such file."""
        if not self.exists(place):
            return None
        stream = self._system(place).open(self._at(place))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, place: str, text: str) -> None:
        """A file that is not there yet, whole or not at all."""
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
        """An empty file."""
        self._system(place).create(self._at(place), True).close()

    def delete(self, place: str) -> None:
        """With all that is in it, if it is there."""
        self._system(place).delete(self._at(place), True)

    @contextmanager
    def on_this_machine(self, folder: str, ending: str) -> Iterator[list[Path]]:
        """The files of a folder, in the order of their names, for whoever knows nothing of Hadoop: those of another
        file system are copied, for as long as the block lasts."""
        system = self._system(folder)
        paths = [status.getPath() for status in system.listStatus(self._at(folder))]
        paths = sorted((path for path in paths if path.getName().endswith(ending)), key=lambda path: path.getName())
        # what Hadoop shows of a path is no URI: blanks and percent signs stand in it as they are
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
