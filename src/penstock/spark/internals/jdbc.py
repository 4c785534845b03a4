"""Connections to a database as Spark's own JDBC source makes them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.spark.internals.declarations import touches
from penstock.spark.internals.java import java_classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


@touches(
    "org.apache.spark.sql.execution.datasources.jdbc (JDBCOptions, JdbcUtils), sql.jdbc.JdbcDialects, `DataFrame._jdf`",
    "Spark's JDBC sink has no transactions over several statements, and no way to run one on its connection.",
)
class Jdbc:
    """`options` are those of Spark's format jdbc, with url."""

    def __init__(self, session: SparkSession, options: Mapping[str, str]) -> None:
        self._session, self._options = session, options

    def columns(self, frame: DataFrame) -> str:
        """Return the columns of a frame as a CREATE TABLE of this database names them."""
        java = java_classes(self._session)
        jdbc = java.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
        nothing = getattr(getattr(java.scala, "None$"), "MODULE$")
        return str(jdbc.schemaString(self._dialect(), frame._jdf.schema(), False, nothing))

    def quoted(self, names: Sequence[str]) -> str:
        """Return names as the database quotes them: MySQL takes "name" for a text."""
        dialect = self._dialect()
        return ", ".join(str(dialect.quoteIdentifier(name)) for name in names)

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection of Java's. What is not committed is undone."""
        java = java_classes(self._session)
        given = java.java.util.HashMap()
        for key, value in self._options.items():
            given.put(key, value)
        jdbc = java.org.apache.spark.sql.execution.datasources.jdbc
        options = jdbc.JDBCOptions(java.org.apache.spark.api.python.PythonUtils.toScalaMap(given))
        connection = self._dialect().createConnectionFactory(options).apply(-1)
        try:
            connection.setAutoCommit(False)
            yield connection
        finally:
            # some databases do not close a connection that has read something and has not ended the transaction
            connection.rollback()
            connection.close()

    def _dialect(self) -> Any:
        return java_classes(self._session).org.apache.spark.sql.jdbc.JdbcDialects.get(self._options["url"])
