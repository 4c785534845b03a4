"""Reading files nobody vouches for, and writing files nobody finds half done.

Input is limited in size and depth, parsed without building objects (no tags, anchors or aliases), and checked
against a strict shape; every complaint is one line that names the file, the field and what was expected.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from penstock.errors import BadInputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_FILE = 32 * 1024 * 1024
DEEPEST_NESTING = 40

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
"""A finite number of at least 0."""

Demand = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False, strict=True)]
"""What one thread needs of a resource: small enough for its square, times any number of threads, to be a number."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
"""A finite number above 0."""

Count = Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)]
"""A whole number of at least 1."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\s/\x00-\x1f][^/\x00-\x1f]*$")]
"""Text that can name a thing: not empty, no slash, no control characters, no leading blank."""


class Spec(BaseModel):
    """A value with a strict shape: frozen, and unknown keys are errors that suggest the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            accepted = {*known, *cls.model_fields}
            for key in data:
                if key not in accepted:
                    message = f"unknown key '{key}'; {nearest(str(key), known)}"
                    raise PydanticCustomError("unknown_key", "{message}", {"message": message})
        return data


S = TypeVar("S", bound=Spec)


def read_document(path: Path) -> Any:
    """The contents of a YAML or JSON file (by its ending) as plain lists, mappings, text and numbers."""
    text = read_text(path)
    return parse_json(text, str(path)) if path.suffix == ".json" else parse_yaml(text, str(path))


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > LARGEST_FILE:
        raise BadInputError(f"{path}: larger than the limit of {LARGEST_FILE // 2**20} MB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: expected UTF-8 text, found byte {raw[error.start]:#x}") from error


def parse_json(text: str, where: str) -> Any:
    def refuse_constant(token: str) -> None:
        raise BadInputError(f"{where}: {token} is not a number JSON allows")

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise BadInputError(f"{where}: key '{twice}' appears twice in one mapping")
        return table

    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=refuse_duplicates)
    except json.JSONDecodeError as error:
        raise BadInputError(f"{where}: line {error.lineno}: not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise BadInputError(f"{where}: nested too deeply") from error
    except ValueError as error:
        raise BadInputError(f"{where}: not valid JSON: {error}") from error


def parse_yaml(text: str, where: str) -> Any:
    try:
        _check_events(text, where)
        return yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader that also refuses double keys
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise BadInputError(f"{where}: {line}not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"{where}: not valid YAML: {reason}") from error


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
        raise BadInputError(f"{where}: {describe(error)}") from error


def describe(error: ValidationError) -> str:
    """The first complaint of pydantic in one line, with the path of the field."""
    first = error.errors(include_url=False)[0]
    path = ""
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    message = first["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    found = first.get("input")
    shown = f", found {found!r}" if isinstance(found, str | int | float) and first["type"] != "value_error" else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    text = f"{path}: {message}{shown}{more}" if path else f"{message}{more}"
    return text.replace("\n", " ")


def check_writable(path: Path) -> None:
    """Complain before any work is done about a path that cannot be written later."""
    if path.exists() and not path.is_file():
        raise BadInputError(f"{path}: cannot be written: not a regular file")
    if not path.parent.is_dir():
        raise BadInputError(f"{path}: cannot be written: folder '{path.parent}' is not there")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` (same ending) that takes its place only if the block succeeds.

    A link stays one, and what it points to is replaced; devices and pipes are left alone.
    """
    check_writable(path)
    path = path.resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
