"""A table of a database, by JDBC: rows and the number of their batch are committed in one transaction.

Spark writes a batch into a table of its own first, from all executors at once. Then one transaction copies it to the
sink's table and notes the batch; a batch that is noted already is left out. The table of its own has a name that no
other process uses: an executor that outlives its driver may still write to that driver's.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError
from penstock.spark.internals.error_messages import in_one_line, java_error
from penstock.spark.internals.jdbc import Jdbc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

BATCHES = "penstock_batches"
"""The table in which every sink has the number of the last batch it holds."""


_LAST_PART = re.compile(r"""("[^"]+"|`[^`]+`|\[[^\]]+\]|[^."`\[\]]+)$""")
_QUOTES = '"`[]'


def bare_name(table: str) -> str:
    """The name of a table as its database lists it: without its schema and the quotes of some database or other."""
    return _parted(table)[1].strip(_QUOTES)


def beside(table: str, name: str) -> str:
    """Another table in the schema of one, quoted as that is."""
    before, last = _parted(table)
    quotes = (last[0], last[-1]) if last[:1] in set(_QUOTES) else ("", "")
    return f"{before}{quotes[0]}{name}{quotes[1]}"


def _parted(table: str) -> tuple[str, str]:
    """Return the part before the last dot of a name, and the rest. A dot inside quotes does not count."""
    last = _LAST_PART.search(table)
    start = 0 if last is None else last.start()
    return table[:start], table[start:]


class TableWriter:
    exactly_once = True

    def __init__(self, session: SparkSession, who: str, options: Mapping[str, str], owner: str) -> None:
        for needed in ("url", "dbtable"):
            if needed not in options:
                raise BadInputError(f"{who}: format jdbc needs options: {needed}")
        self._who = who
        self._options = options
        self._jdbc = Jdbc(session, options)
        self._owner = owner
        self._table = options["dbtable"]
        self._staged_by_owner = f"{bare_name(self._table)}_staged_{sha256(owner.encode()).hexdigest()[:12]}"
        self._staged = beside(self._table, f"{self._staged_by_owner}_{secrets.token_hex(4)}")
        self._is_sqlite = options["url"].startswith("jdbc:sqlite")
        self._last: int | None = None
        """The last batch the table holds; None: not read yet. Only one process writes as this owner."""

    def prepare(self) -> None:
        """Makes the table of batches, and drops what an earlier process of the run left half done."""
        with in_one_line(self._who, "jdbc"), self._jdbc.connection() as connection:
            if not self._knows_batches(connection):
                columns = "sink VARCHAR(300) NOT NULL PRIMARY KEY, batch BIGINT"
                self._run(connection, f"CREATE TABLE {BATCHES} ({columns})")
            for table in self._left_behind(connection):
                self._run(connection, f"DROP TABLE {beside(self._table, table)}")
            if self._last_batch(connection) is None:
                self._run(connection, f"INSERT INTO {BATCHES} VALUES (?, ?)", self._owner, -1)  # noqa: S608
            connection.commit()

    def close(self) -> None:
        pass

    def _knows_batches(self, connection: Any) -> bool:
        """Return whether the table of batches is there, by a query: databases differ in how they create a table only if
        it is missing."""
        try:
            self._run(connection, f"SELECT batch FROM {BATCHES} WHERE 1 = 0")  # noqa: S608 - its own name
        except java_error():
            connection.rollback()
            return False
        return True

    def _left_behind(self, connection: Any) -> list[str]:
        """Tables of the run's earlier processes. A database may write names that are not quoted in capitals."""
        mine = self._staged_by_owner.lower()
        tables, rows = [], connection.getMetaData().getTables(None, None, "%", None)
        while rows.next():
            name = str(rows.getString("TABLE_NAME"))
            if name.lower().startswith(mine):
                tables.append(name)
        rows.close()
        return tables

    def write(self, frame: DataFrame, batch: int) -> None:
        # SQLite takes one writer at a time; all steps before it still use all slots
        rows = frame.repartition(1) if self._is_sqlite else frame
        with in_one_line(self._who, "jdbc"):
            if self._last is None:
                with self._jdbc.connection() as connection:
                    last = self._last_batch(connection)
                self._last = -1 if last is None else last
            if batch <= self._last:
                return
            staged = {**self._options, "dbtable": self._staged}
            if self._is_sqlite:
                self._make_tables(frame)
            else:
                frame.limit(0).write.format("jdbc").options(**self._options).mode("append").save()
            rows.write.format("jdbc").options(**staged).mode("append" if self._is_sqlite else "overwrite").save()
            self._commit(frame.columns, batch)
            self._last = batch

    def _make_tables(self, frame: DataFrame) -> None:
        """Create the tables of SQLite: Spark cannot detect whether one exists, because its driver gives errors no
        state. The columns are those that Spark would give them."""
        columns = self._jdbc.columns(frame)
        with self._jdbc.connection() as connection:
            self._run(connection, f"CREATE TABLE IF NOT EXISTS {self._table} ({columns})")
            self._run(connection, f"DROP TABLE IF EXISTS {self._staged}")
            self._run(connection, f"CREATE TABLE {self._staged} ({columns})")
            connection.commit()

    def _commit(self, columns: list[str], batch: int) -> None:
        quoted = self._jdbc.quoted(columns)
        with self._jdbc.connection() as connection:
            # the first to change the row has the batch: another process that was given up may be writing it too
            note = f"UPDATE {BATCHES} SET batch = ? WHERE sink = ? AND batch < ?"  # noqa: S608 - its own name
            if self._run(connection, note, batch, self._owner, batch):
                copy = f"INSERT INTO {self._table} ({quoted}) SELECT {quoted} FROM {self._staged}"  # noqa: S608
                self._run(connection, copy)
            connection.commit()
            self._run(connection, f"DROP TABLE {self._staged}")
            connection.commit()

    def _last_batch(self, connection: Any) -> int | None:
        """None: this sink was never here."""
        statement = connection.prepareStatement(f"SELECT batch FROM {BATCHES} WHERE sink = ?")  # noqa: S608
        statement.setString(1, self._owner)
        rows = statement.executeQuery()
        last = int(rows.getLong(1)) if rows.next() else None
        statement.close()
        return last

    @staticmethod
    def _run(connection: Any, sql: str, *values: str | int) -> int:
        """Return the number of rows changed, if the statement changes rows."""
        statement = connection.prepareStatement(sql)
        for position, value in enumerate(values, start=1):
            if isinstance(value, int):
                statement.setLong(position, value)
            else:
                statement.setString(position, value)
        statement.execute()
        changed = int(statement.getUpdateCount())
        statement.close()
        return changed
