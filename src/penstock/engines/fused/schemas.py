"""Schemas in Spark's words and in Arrow's."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.base.errors import BadInputError
from penstock.spark.internals.error_messages import first_line

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def struct_of(words: str, where: str) -> StructType:
    """A schema as `word string, length int`; `where` names whose it is in the complaint."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark loads only when it is used
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        return cast("StructType", StructType.fromDDL(words))
    except PySparkException as error:
        raise BadInputError(f"{where}: schema '{words}': {first_line(error)}") from error
