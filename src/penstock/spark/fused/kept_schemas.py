"""What was seen of code that does not say what it sends, kept in the folder of its run: whoever goes on with the run
would see other tuples, and might send other columns to the same sink."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import BadInputError
from penstock.files import Name, Versioned, read_value, write_text
from penstock.runtime.inner_types import in_zone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE = "schemas.json"


class KeptSchemas(Versioned):
    """`operators` has schemas as Arrow writes them, in base64; `timezone` is that of the session they are from."""

    timezone: str
    operators: dict[Name, str]


def keep_schemas(folder: Path, schemas: Mapping[str, pa.Schema], timezone: str) -> None:
    written = {name: base64.b64encode(schema.serialize().to_pybytes()).decode() for name, schema in schemas.items()}
    write_text(folder / FILE, KeptSchemas(timezone=timezone, operators=written).model_dump_json(indent=2))


def kept_schemas(folder: Path, timezone: str) -> dict[str, pa.Schema]:
    """By operator; none of a run that has kept none. Moments are shown by the clock of the session of now."""
    file = folder / FILE
    if not file.exists():
        return {}
    kept = read_value(KeptSchemas, file)
    schemas = {}
    for name, text in kept.operators.items():
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadInputError(f"{file}: operators.{name}: expected a schema of Arrow in base64") from error
        schemas[name] = schema if kept.timezone == timezone else in_zone(schema, timezone)
    return schemas
