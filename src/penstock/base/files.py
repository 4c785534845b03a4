"""Strict reading of untrusted files, and atomic writing.

Input is limited in size and depth, parsed without building objects (no tags, anchors or aliases), and checked against a
strict shape; every error is one line that names the file, the field and the expected value.

Penstock's own files (`write_text`, `private_folder`, `temporary_folder`) are readable by their owner alone; files that
a user named (`write_output`) have the usual permissions. Both are synced to the disk before they appear under their
names.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from penstock.base.errors import BadInputError, nearest
from penstock.base.former_names import with_present_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


LARGEST_FILE = 32 * 2**20
LARGEST_YAML = 2 * 2**20
"""Parsing YAML takes seconds per MB, JSON hundredths of one."""
DEEPEST_NESTING = 40
LONGEST_QUOTE = 80
"""Characters of a wrong value that a complaint repeats."""
OWNER = ".owner"
"""The file in a temporary folder that its process holds locked for as long as it lives."""

_LOG = logging.getLogger(__name__)

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
"""A finite number of at least 0."""

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""An option of a policy: a finite number of at least 0."""

Share = Annotated[float, Field(ge=0, le=1)]
"""An option of a policy: from 0 to 1."""

Demand = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False, strict=True)]
"""Amount of a resource that one thread needs: small enough that its square, times any number of threads, is finite."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
"""A finite number above 0."""

Count = Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)]
"""A whole number of at least 1."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\s/\x00-\x1f][^/\x00-\x1f]*$")]
"""Text that can name a thing: not empty, no slash, no control characters, no leading blank."""


_NAME = r"[^\s/\x00-\x1f][^/\x00-\x1f]*"
ModelName = Annotated[str, Field(min_length=1, max_length=401, pattern=rf"^{_NAME}(/{_NAME})?$")]
"""A name, or PIPELINE/OPERATOR: the model of one operator of one pipeline."""


class Spec(BaseModel):
    """A value with a strict shape: frozen, and unknown keys are errors that suggest the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    former: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Keys of earlier versions, which are still read, and the present key of each."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            if cls.former:
                try:
                    data = with_present_names(data, cls.former, "'{}'")
                except BadInputError as error:
                    raise PydanticCustomError("two_names", "{message}", {"message": str(error)}) from error
            known = [field.alias or name for name, field in cls.model_fields.items()]
            accepted = {*known, *cls.model_fields}
            for key in data:
                if key not in accepted:
                    message = f"unknown key '{quoted(str(key))}'; {nearest(str(key), known)}"
                    raise PydanticCustomError("unknown_key", "{message}", {"message": message})
        return data


class Versioned(Spec):
    """The contents of a file with the version of its format. Files of Penstock 0.1 have none: theirs is 1."""

    newest: ClassVar[int] = 1
    """The format this Penstock writes, and the last it knows."""
    format: Count = 1


S = TypeVar("S", bound=Spec)
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def read_document(path: Path) -> Any:
    """The contents of a YAML or JSON file (by its ending) as plain lists, mappings, text and numbers."""
    text = read_text(path)
    return parse_json(text, str(path)) if path.suffix == ".json" else parse_yaml(text, str(path))


def read_value(shape: type[S], path: Path) -> S:
    """Read a value that was written as JSON, by Penstock or by another program."""
    return check(shape, parse_json(read_text(path), str(path)), str(path))


def read_text(path: Path) -> str:
    raw = read_bytes(path)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: expected UTF-8 text, found byte {raw[error.start]:#x}") from error


def read_bytes(path: Path) -> bytes:
    """The contents of a regular file; a pipe or a device could keep us for ever, so it is not even waited for."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - by its number
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadInputError(f"{path}: cannot be read: not a regular file")
            raw = file.read(0 if status.st_size > LARGEST_FILE else LARGEST_FILE + 1)  # some say less than they hold
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if max(status.st_size, len(raw)) > LARGEST_FILE:
        raise BadInputError(f"{path}: larger than the limit of {LARGEST_FILE // 2**20} MB")
    return raw


def parse_json(text: str, where: str) -> Any:
    def refuse_constant(token: str) -> None:
        raise BadInputError(f"{where}: {token} is not a number JSON allows")

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise BadInputError(f"{where}: key '{quoted(_first_twice(pairs))}' appears twice in one mapping")
        return table

    try:
        data = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_duplicates)
    except json.JSONDecodeError as error:
        raise BadInputError(f"{where}: line {error.lineno}: not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise BadInputError(f"{where}: nested deeper than {DEEPEST_NESTING} levels") from error
    except ValueError as error:
        raise BadInputError(f"{where}: not valid JSON: {error}") from error
    _check_nesting_and_text(data, where)
    return data


def _first_twice(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError("asked only where a key appears twice")


def _check_nesting_and_text(data: Any, where: str) -> None:
    """Reject unusual depths, and lone surrogates (JSON can spell them), which terminals do not accept."""
    level: list[Any] = [data]
    for _ in range(DEEPEST_NESTING + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str) and _HALF_CHARACTER.search(value):
                raise BadInputError(f"{where}: {value[:LONGEST_QUOTE]!a} is not text: half a character (surrogate)")
        if not below:
            return
        level = below
    raise BadInputError(f"{where}: nested deeper than {DEEPEST_NESTING} levels")


def parse_yaml(text: str, where: str) -> Any:
    if len(text) > LARGEST_YAML:
        raise BadInputError(f"{where}: larger than the limit of {LARGEST_YAML // 2**20} MB for YAML; write it as JSON")
    try:
        _check_events(text, where)
        data = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader that also refuses double keys
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise BadInputError(f"{where}: {line}not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"{where}: not valid YAML: {reason}") from error
    _check_nesting_and_text(data, where)
    return data


def _check_events(text: str, where: str) -> None:
    """Refuse tags, anchors, aliases and deep nesting before anything is constructed."""
    depth = 0
    for event in yaml.parse(text, Loader=_BASE_LOADER):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BadInputError(f"{where}: line {line}: anchors and aliases are not accepted; write the value out")
        if getattr(event, "tag", None):
            raise BadInputError(f"{where}: line {line}: tag '{event.tag}' is not accepted; plain values only")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST_NESTING:
                raise BadInputError(f"{where}: line {line}: nested deeper than {DEEPEST_NESTING} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_BASE_LOADER):  # type: ignore[misc] # chosen at run time: libyaml's parser where it is built in
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be plain text", key_node.start_mark)
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key_node.value}' appears twice", key_node.start_mark
                )
            seen.add(key_node.value)
        table: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return table


def check(shape: type[S], data: Any, where: str) -> S:
    """`data` as a value of `shape`, or a `BadInputError` naming the first offending field."""
    if not isinstance(data, dict):
        kind = "nothing" if data is None else type(data).__name__
        raise BadInputError(f"{where}: expected a mapping with the keys of a {shape.__name__.lower()}, found {kind}")
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        raise BadInputError(f"{where}: {_newer(shape, data)}{describe(error)}") from error


def _newer(shape: type[Spec], data: dict[str, Any]) -> str:
    """Return the beginning of an error message if a file has a later format than this version knows."""
    version = data.get("format")
    if not issubclass(shape, Versioned) or type(version) is not int or version <= shape.newest:
        return ""
    return f"written by a newer Penstock (format {version}, this one knows up to {shape.newest}): "


def describe(error: ValidationError) -> str:
    """The first complaint of pydantic in one line, with the path of the field."""
    first = error.errors(include_url=False)[0]
    path = ""
    for part in first["loc"]:
        name = quoted(str(part))
        path += f"[{part}]" if isinstance(part, int) else f".{name}" if path else name
    message = first["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    value = first.get("input")
    is_shown = isinstance(value, str | int | float) and first["type"] != "value_error"
    shown = f", found {quoted(_shown(value))}" if is_shown else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    text = f"{path}: {message}{shown}{more}" if path else f"{message}{more}"
    return text.replace("\n", " ")


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no whole number of more than some thousand digits
        return "a number of thousands of digits"


def quoted(text: str) -> str:
    """Return the beginning of an untrusted text, as far as a message should repeat it."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}..."


def check_writable(path: Path) -> None:
    """Complain before any work is done about a path that cannot be written later."""
    try:
        if path.exists() and not path.is_file():
            raise BadInputError(f"{path}: cannot be written: not a regular file")
        if not path.parent.is_dir():
            raise BadInputError(f"{path}: cannot be written: folder '{path.parent}' is not there")
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from error


@contextlib.contextmanager
def atomic_path(path: Path, *, mode: int = 0o600) -> Iterator[Path]:
    """A temporary path beside `path` (same ending) that takes its place only if the block succeeds.

    A reader of `path` finds the whole file, even after a power cut. A link stays a link, and its target is replaced;
    devices and pipes are left alone.
    """
    check_writable(path)
    path = path.resolve()
    temporary = path.with_name(f".{path.stem[:50]}-{secrets.token_hex(8)}{path.suffix}")
    try:
        # The system takes what the umask forbids from `mode` itself: asking for the umask would change it for a moment.
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        yield temporary
        to_disk(temporary)
        temporary.replace(path)
        to_disk(path.parent)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def to_disk(path: Path) -> None:
    """Return when the contents of a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """A file that Penstock keeps for itself: only its owner may read it."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: Path, data: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_output(path: Path, text: str) -> None:
    """Write a file that a user named: the user's umask sets its permissions."""
    with output_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def output_path(path: Path) -> contextlib.AbstractContextManager[Path]:
    """`atomic_path` of a file that a user asked for by name."""
    return atomic_path(path, mode=0o666)


def private_folder(path: Path) -> Path:
    """The folder, made if it is not there with those above it: only its owner may look into it. One of another user is
    refused, for it may hold links; root's may be the volume of a container."""
    path = path.absolute()
    try:
        for folder in (folder for folder in reversed([path, *path.parents]) if not folder.is_dir()):
            folder.mkdir(mode=0o700, exist_ok=True)
        if path.stat().st_uid not in {os.getuid(), 0}:
            raise BadInputError(f"{path}: belongs to another user; name a folder of your own")
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be used: {getattr(error, 'strerror', None) or error}") from error
    return path


@contextlib.contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """A private folder that ends with the block, or, if this process is killed, when another one makes such a folder.

    A folder in use has a lock that ends with its process. (A process number would not do: it may belong to another
    process by now, or to another container that shares the folder for temporary files.)
    """
    sweep_temporary_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-{kind}-"))
    owner = os.open(folder / f"{OWNER}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX)
        (folder / f"{OWNER}.new").rename(folder / OWNER)  # visible only once it is locked
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def sweep_temporary_folders() -> list[Path]:
    """Remove the temporary folders of processes of this user that are no more."""
    swept = []
    for folder in sorted(Path(tempfile.gettempdir()).glob("penstock-*")):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            owner = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # not one of ours, or gone meanwhile
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # in use
        else:
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
            _LOG.info("removed %s, which a process left behind", folder)
        finally:
            os.close(owner)
    return swept


# CSV tables from untrusted files: a header, then rows.


class CsvTable:
    """`header`, and with `rows` the cells of every line under it by column, without blanks around them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
        self.header = next(self._cells(), [])

    def rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Line numbers with what stands there; empty lines are passed over."""
        for cells in self._cells():
            if not any(cells):
                continue
            if len(cells) != len(self.header):
                where = f"{self._path}: line {self._reader.line_num}"
                raise BadInputError(f"{where}: number of cells differs from the header")
            yield self._reader.line_num, dict(zip(self.header, cells, strict=True))

    def _cells(self) -> Iterator[list[str]]:
        try:
            for row in self._reader:
                yield [cell.strip() for cell in row]
        except csv.Error as error:
            where = f"{self._path}: line {self._reader.line_num}"
            raise BadInputError(f"{where}: not valid CSV: {quoted(str(error))}") from error
