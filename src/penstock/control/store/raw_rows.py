"""Rows as the database returns them, checked against their table column by column.

SQLite stores any value whatever the column's type, and a damaged file returns anything: nothing is taken from a
store before it was checked here.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from sqlalchemy import JSON, BigInteger, Boolean, Float, Integer, LargeBinary, String
from sqlalchemy.exc import SQLAlchemyError

from penstock.control.store.errors import DamagedStoreError, StoreFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Column, Connection, Table

INT64 = 2**63
LONGEST_SHOWN = 60

_INFINITY = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
"""Texts, and the two kinds of numbers that JSON does not know."""


def encode_json(value: Any) -> str:
    """JSON that both databases keep. Infinity is written as a number that is too large, which is read as infinity
    again; NaN is rejected."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return _INFINITY.sub(_number, json.dumps(value))


def _number(token: re.Match[str]) -> str:
    if token[0] == "NaN":
        raise ValueError("nan cannot be stored")
    return token[0] if token[0].startswith('"') else token[0].replace("Infinity", "1e999")


def decode_json(text: str) -> Any:
    def reject(token: str) -> float:
        if token == "NaN":  # noqa: S105 - a number
            raise ValueError("nan is not a number")
        return float(token)  # Infinity, in stores before version 4

    return json.loads(text, parse_constant=reject)


def key_of(table: Table, row: Mapping[str, Any]) -> str:
    return "/".join(repr(row.get(column.name)) for column in table.primary_key.columns)[:200]


def select_raw(connection: Connection, table: Table, more: str = "") -> Iterator[dict[str, Any]]:
    """Yield all rows as the driver returns them. Text that is no UTF-8 comes as bytes."""
    names = [column.name for column in table.columns]
    listed = ", ".join(f'"{name}"' for name in names)
    driver: Any = connection.connection.driver_connection
    is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite:
        driver.text_factory = text_or_bytes
    try:
        for row in connection.exec_driver_sql(f'SELECT {listed} FROM "{table.name}" {more}'):  # noqa: S608 - our own names
            yield dict(zip(names, row, strict=True))
    except SQLAlchemyError as error:
        raise DamagedStoreError(str(StoreFault(table.name, "", reason_of(error)))) from error
    finally:
        if is_sqlite:
            driver.text_factory = str


def text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def parse(table: Table, raw: Mapping[str, Any], *, is_sqlite: bool) -> tuple[dict[str, Any], str]:
    """Return the row with JSON and booleans read, and why it cannot be used (empty: it can)."""
    row = dict(raw)
    for column in table.columns:
        value = row[column.name]
        try:
            if isinstance(column.type, JSON) and is_sqlite and isinstance(value, str):
                row[column.name] = decode_json(value)
            elif isinstance(column.type, Boolean) and type(value) is int and value in {0, 1}:
                row[column.name] = bool(value)
        except (ValueError, RecursionError) as error:
            return row, f"{column.name}: not valid JSON: {str(error).splitlines()[0]}"
    return row, row_fault(table, row)


def row_fault(table: Table, row: Mapping[str, Any]) -> str:
    """The first column that cannot be used, and why; empty if all can."""
    for column in table.columns:
        if column.name in row and (reason := _fault(column, row[column.name])):
            return f"{column.name}: {reason}"
    return ""


def _fault(column: Column[Any], value: Any) -> str:  # noqa: PLR0911 - one return for every type
    kind = column.type
    if isinstance(kind, JSON):
        return "" if value is not None or column.nullable else "nothing is stored"
    if value is None:
        return "" if column.nullable else "nothing is stored"
    if isinstance(kind, Boolean):
        return "" if isinstance(value, bool) else f"expected yes or no, found {shown(value)}"
    if isinstance(kind, Integer | BigInteger):
        if type(value) is not int:
            return f"expected a whole number, found {shown(value)}"
        low = column.info.get("least", 0)
        return (
            "" if low <= value < INT64 else f"expected a number of at least {low} and below 2**63, found {shown(value)}"
        )
    if isinstance(kind, Float):
        is_number = isinstance(value, float | int) and not isinstance(value, bool)
        return "" if is_number and not _is_nan(value) else f"expected a number, found {shown(value)}"
    if isinstance(kind, String):
        return text_fault(value)
    if isinstance(kind, LargeBinary):
        return "" if isinstance(value, bytes) else f"expected bytes, found {shown(value)}"
    raise AssertionError(f"no check for columns of type {kind}")


def _is_nan(value: float) -> bool:
    return isinstance(value, float) and math.isnan(value)


def text_fault(value: Any) -> str:
    if not isinstance(value, str):
        return f"expected text, found {shown(value)}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{shown(value)} is not text: half a character (surrogate)"
    return ""


def shown(value: Any) -> str:
    try:
        text = ascii(value)
    except ValueError:  # Python writes no whole number of more than some thousand digits
        text = "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def reason_of(error: SQLAlchemyError) -> str:
    return next(iter(str(getattr(error, "orig", None) or error).splitlines()), type(error).__name__)
