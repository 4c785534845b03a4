"""How many shuffle partitions a query has: those its checkpoint began with, else those of its session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.spark.fused.complaints import in_one_line
from penstock.spark.fused.last_batch import CheckpointLog
from penstock.spark.session.partitions import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def partitions_of(session: SparkSession, checkpoint: str) -> int:
    with in_one_line(f"checkpoint '{checkpoint}'"):
        offsets = CheckpointLog(session, checkpoint, "offsets")
        last = offsets.last()
        kept = None if last < 0 else partitions_in(offsets.read(last))
        return int(session.conf.get(PARTITIONS) or 0) if kept is None else kept


def partitions_in(entry: str) -> int | None:
    """As an entry of the log of offsets says: behind its version stands a line of JSON with what a batch was run with.
    None: it does not."""
    try:
        return int(json.loads(entry.split("\n")[1])["conf"][PARTITIONS])
    except (IndexError, KeyError, TypeError, ValueError):
        return None
