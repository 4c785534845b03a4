"""Schemas in Spark's words and in Arrow's."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from penstock.base.errors import BadInputError
from penstock.runtime.nested_values import in_zone
from penstock.spark.internals.error_messages import first_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def struct_of(words: str, where: str) -> StructType:
    """A schema as `word string, length int`; `where` names whose it is in the complaint."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark loads only when it is used
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        return cast("StructType", StructType.fromDDL(words))
    except PySparkException as error:
        raise BadInputError(f"{where}: schema '{words}': {first_line(error)}") from error


def arrow_of(struct: StructType, timezone: str = "UTC") -> pa.Schema:
    """`timezone` is that of the session: Spark hands timestamps to Python with it."""
    from pyspark.sql.pandas import types  # noqa: PLC0415 - Spark loads only when it is used

    to_arrow_schema: Any = types.to_arrow_schema
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        schema: pa.Schema = to_arrow_schema(struct, timezone=timezone)
        return schema
    # Spark before 4.1 does not ask, and says UTC of everything
    return in_zone(to_arrow_schema(struct), timezone)


def struct_of_arrow(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark loads only when it is used

    return from_arrow_schema(schema)
