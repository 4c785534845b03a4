"""Tables in files nobody vouches for: a header, then rows."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.files import quoted, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
