"""Spark's words for schemas (`user string, amounts array<double>`) as Arrow schemas, without Java.

Spark parses these words in its JVM. Tests that run no Spark get the same Arrow types from this parser; a word it does
not know is an error that names it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.base.errors import BadInputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "decimal": pa.decimal128(10, 0),
}
_TOKEN = re.compile(r"\s*(`[^`]+`|\w+|[<>(),:])")


def schema_of_words(words: str, where: str) -> pa.Schema:
    """Return the Arrow schema of `words`. Errors begin with `where`."""
    parser = _Parser(words, where)
    fields = parser.fields(until="")
    return pa.schema(fields)


class _Parser:
    def __init__(self, words: str, where: str) -> None:
        self._words, self._where = words, where
        self._tokens = _TOKEN.findall(words)
        if "".join(self._tokens) != re.sub(r"\s+(?=(?:[^`]*`[^`]*`)*[^`]*$)", "", words):
            raise self._error("expected NAME TYPE, ...")
        self._at = 0

    def fields(self, until: str) -> list[pa.Field]:
        fields = []
        while True:
            name = self._next().strip("`")
            if self._peek() == ":":
                self._next()
            kind = self._type()
            nullable = True
            if self._peek().lower() == "not":
                self._next()
                self._expect("null")
                nullable = False
            fields.append(pa.field(name, kind, nullable))
            if self._peek() != ",":
                self._expect(until)
                return fields
            self._next()

    def _type(self) -> pa.DataType:
        word = self._next().lower()
        nested: dict[str, Callable[[], pa.DataType]] = {"array": self._array, "map": self._map, "struct": self._struct}
        if word in nested:
            self._expect("<")
            return nested[word]()
        if word == "decimal" and self._peek() == "(":
            self._next()
            precision = int(self._next())
            self._expect(",")
            scale = int(self._next())
            self._expect(")")
            return pa.decimal128(precision, scale)
        if word not in PLAIN:
            raise self._error(f"unknown type '{word}'; {nearest(word, [*PLAIN, *nested])}")
        return PLAIN[word]

    def _array(self) -> pa.DataType:
        element = self._type()
        self._expect(">")
        return pa.list_(pa.field("element", element))

    def _map(self) -> pa.DataType:
        key = self._type()
        self._expect(",")
        value = self._type()
        self._expect(">")
        return pa.map_(key, value)

    def _struct(self) -> pa.DataType:
        return pa.struct(self.fields(until=">"))

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        if not token:
            raise self._error("it ends too early; expected NAME TYPE, ...")
        return str(token)

    def _expect(self, token: str) -> None:
        if self._peek().lower() != token:
            raise self._error(f"expected '{token or 'its end'}', found '{self._peek() or 'its end'}'")
        self._at += 1

    def _error(self, what: str) -> BadInputError:
        return BadInputError(f"{self._where}: schema '{self._words}': {what}")
