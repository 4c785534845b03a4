"""Storage of checkpoints and sinks: a local folder, or any file system pyarrow knows (S3, HDFS, ...).

A file is there whole or not at all, and on the disk when `write` returns.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from stat import S_IRWXG, S_IRWXO
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.errors import BadInputError
from penstock.base.files import to_disk

if TYPE_CHECKING:
    from collections.abc import Callable


class Storage(Protocol):
    """Files by their path below one place."""

    def write(self, path: str, fill: Callable[[Any], None]) -> None:
        """A file that `fill` writes into."""

    def read(self, path: str) -> bytes: ...

    def move(self, path: str, to: str) -> None:
        """Under another name; a file that has been moved already stays."""

    def delete(self, path: str) -> None:
        """If it is there."""

    def list_all(self, folder: str) -> list[str]:
        """Paths of the files below a folder and the folders in it."""

    def list(self, folder: str) -> list[str]:
        """Paths of the files right below a folder."""


def storage(place: str) -> Storage:
    """`place` is a folder, or a URI such as s3://bucket/folder."""
    if "://" not in place:
        return LocalStorage(Path(place))
    from pyarrow import ArrowException  # noqa: PLC0415 - belongs to the extra
    from pyarrow.fs import FileSystem  # noqa: PLC0415

    try:
        system, base = FileSystem.from_uri(place)
    except (ArrowException, OSError, ValueError) as error:
        raise BadInputError(f"{place}: cannot be reached: {str(error).splitlines()[0]}") from error
    return ArrowStorage(system, base)


class LocalStorage:
    def __init__(self, base: Path) -> None:
        self._base = base

    def write(self, path: str, fill: Callable[[Any], None]) -> None:
        target = self._base / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="._", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(target)
            to_disk(target.parent)
        finally:
            Path(name).unlink(missing_ok=True)

    def read(self, path: str) -> bytes:
        return (self._base / path).read_bytes()

    def move(self, path: str, to: str) -> None:
        target = self._base / to
        try:
            (self._base / path).replace(target)
        except FileNotFoundError:
            if not target.exists():
                raise
        to_disk(target.parent)

    def delete(self, path: str) -> None:
        (self._base / path).unlink(missing_ok=True)

    def list_all(self, folder: str) -> list[str]:
        return sorted(str(path.relative_to(self._base)) for path in (self._base / folder).rglob("*") if path.is_file())

    def list(self, folder: str) -> list[str]:
        here = self._base / folder
        if not here.is_dir():
            return []
        return sorted(str(path.relative_to(self._base)) for path in here.iterdir() if path.is_file())


class ArrowStorage:
    """Through pyarrow: written under another name and moved, as some of them show files that are not whole yet."""

    def __init__(self, system: Any, base: str) -> None:
        self._system = system
        self._base = base

    def write(self, path: str, fill: Callable[[Any], None]) -> None:
        target = self._at(path)
        self._system.create_dir(target.rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(f"{target}.part") as file:
            fill(file)
        self._system.move(f"{target}.part", target)

    def read(self, path: str) -> bytes:
        with self._system.open_input_stream(self._at(path)) as file:
            return bytes(file.read())

    def move(self, path: str, to: str) -> None:
        from pyarrow.fs import FileType  # noqa: PLC0415 - belongs to the extra

        source, target = self._at(path), self._at(to)
        there, moved = self._system.get_file_info([source, target])
        if there.type == FileType.NotFound and moved.type != FileType.NotFound:
            return
        self._system.move(source, target)

    def delete(self, path: str) -> None:
        from pyarrow.fs import FileType  # noqa: PLC0415 - belongs to the extra

        if self._system.get_file_info(self._at(path)).type != FileType.NotFound:
            self._system.delete_file(self._at(path))

    def list_all(self, folder: str) -> list[str]:
        return self._paths(folder, recursive=True)

    def _paths(self, folder: str, *, recursive: bool) -> list[str]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - belongs to the extra

        selector = FileSelector(self._at(folder), allow_not_found=True, recursive=recursive)
        base = len(self._base.rstrip("/")) + 1
        return sorted(info.path[base:] for info in self._system.get_file_info(selector) if info.is_file)

    def list(self, folder: str) -> list[str]:
        return self._paths(folder, recursive=False)

    def _at(self, path: str) -> str:
        return f"{self._base.rstrip('/')}/{path}"


# A folder of this user's in the system's temporary folder: another user may have made one of that name before.


def user_folder(kind: str) -> Path:
    """Return `penstock-KIND-UID`, made if it is missing.

    Raise BadInputError if it is a link, of another user or open to others: files in it could be theirs."""
    path = Path(tempfile.gettempdir()) / f"penstock-{kind}-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be used: {error.strerror or error}; remove it or set TMPDIR") from error
    try:
        status = os.fstat(handle)
    finally:
        os.close(handle)
    if status.st_uid != os.getuid():
        raise BadInputError(f"{path}: belongs to another user; set TMPDIR to a folder of your own")
    if status.st_mode & (S_IRWXG | S_IRWXO):
        raise BadInputError(f"{path}: open to other users; remove it, or set TMPDIR to a folder of your own")
    return path
