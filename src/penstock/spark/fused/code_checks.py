"""What can be said of code and columns before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.logic import Per
from penstock.errors import BadInputError
from penstock.spark.fused.region_function import DUE_COLUMN, ENTRY_COLUMN, EXIT_COLUMN, ID_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.dataflow.logic import Logic

RESERVED = frozenset({ID_COLUMN, DUE_COLUMN, ENTRY_COLUMN, EXIT_COLUMN})
"""Columns of ours beside the user's: one of the user's by such a name would be taken for ours, and be gone."""


def check_pickled(code: Mapping[str, Logic]) -> None:
    """Code that workers call must come to them; Spark's own operators are called here."""
    from pyspark import cloudpickle  # noqa: PLC0415 - Spark loads only when it is used

    for name, logic in code.items():
        if logic.per is Per.DATAFRAME:
            continue
        try:
            cloudpickle.dumps(logic)  # type: ignore[no-untyped-call] # ships no types
        except Exception as error:  # whatever the user's objects raise when they are asked to be bytes
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInputError(
                f"operator '{name}': its code cannot be sent to workers: {reason}; make what it needs there, with open="
            ) from error


def check_columns(columns: Iterable[str], who: str) -> None:
    """Spark does not tell small letters from capitals."""
    for column in columns:
        if column.lower() in RESERVED:
            raise BadInputError(f"{who}: column '{column}': Penstock keeps that name for itself; rename it")
