"""What is said of an operator and nothing would read: refused where a pipeline is written down.

Not where one is read from a plan or a run: earlier versions let it pass, and it does no harm there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.endpoints import reading_of
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Kind
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.dataflow.pipeline import Operator


def refuse_unread_keys(operator: Operator) -> None:
    for part in (operator, *operator.chain):
        for keys, why in _unread(part):
            values = {"schema": part.schema_, **{key: getattr(part, key) for key in keys if key != "schema"}}
            given = next((key for key in keys if values[key] is not None), None)
            if given is not None:
                raise BadInputError(f"{part.kind} '{part.name}': {given}: {why}")


def _unread(operator: Operator) -> Iterator[tuple[tuple[str, ...], str]]:
    """Keys, and why they say nothing."""
    of_calls = ("per", "timeout_seconds", "on_error")
    has_code = operator.run is not None or operator.logic is not None
    per = operator.logic.per if isinstance(operator.logic, Logic) else operator.per
    if operator.aggregate is not None:
        yield (
            (*of_calls, "schema"),
            "not beside aggregate: it calls no code, and its outputs say what it sends",
        )
    elif operator.chain:
        yield (*of_calls, "schema"), "not beside chain: each of its parts says it"
    elif operator.kind is not Kind.OPERATOR and not has_code:
        yield of_calls, f"not of a {operator.kind} without code (run): nothing is called"
    if per is Per.DATAFRAME and not operator.is_declared:
        yield ("threads",), f"not with per='{Per.DATAFRAME}': Spark works on the tuples by itself"
    if operator.kind is Kind.SOURCE and not has_code:
        reading = reading_of(operator)
        if reading.is_load:
            yield ("schema",), "not of the load generator: it sends numbers, as value long; or give a format to read"
        elif not operator.is_declared:
            yield ("threads",), "not of a source that Spark reads"
        if reading.of_the_user:
            yield ("schema",), "not beside frame: the frame has its columns"
