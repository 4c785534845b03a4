"""The shape of a pipeline: what is the same where it runs as a whole the same way, beside the code of its operators.

Which streams there are and which part of their sender's tuples they take; what is read and written, as far as a
rehearsal reads and writes it (`penstock.spark.trials.rehearsal`): files in their format with its options, wherever they
are, and as many to a batch; every other sink counts, and every other source that is not the load generator is replayed.
Selectivities only say what happens anyway.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from penstock.dataflow.endpoints import file_end, reading_of
from penstock.dataflow.pipeline import Kind

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Operator, Pipeline

LENGTH = 16
"""Hex digits that are kept."""
_MOST_FILES = "maxfilespertrigger"


def shape_of(pipeline: Pipeline) -> str:
    """The same for the same shape, in whatever order it is declared."""
    streams = sorted(f"{stream.sender} {stream.receiver} {stream.weight!r}" for stream in pipeline.streams)
    ends = sorted(
        _described(operator) for operator in pipeline.operators.values() if operator.kind is not Kind.OPERATOR
    )
    return hashlib.sha256("\n".join([*streams, *ends]).encode()).hexdigest()[:LENGTH]


def _described(operator: Operator) -> str:
    files = file_end(operator)
    if files is not None:
        most_files = [value for name, value in operator.options.items() if name.lower() == _MOST_FILES]
        what = f"{files.format} {sorted(files.options.items())} {most_files}"
    elif operator.kind is Kind.SOURCE:
        what = "load" if reading_of(operator).is_load else "replayed"
    else:
        what = "counts"
    return f"{operator.kind} {operator.name} {what} {operator.watermark!r} {operator.mode}"
