"""The name under which sinks know the batches of a checkpoint.

Batches are numbered by Spark's checkpoint, from 0, and a sink leaves out a number that it has. So the name must be as
old as the numbers. The run's own name is not: a run whose checkpoint was removed begins with batch 0 again, and a
checkpoint may be gone on with from another folder, by a run of another name. The name is kept in the checkpoint, and is
gone with it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from penstock.spark.fused.complaints import in_one_line
from penstock.spark.fused.hadoop_files import HadoopFiles
from penstock.spark.fused.last_batch import CheckpointLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER = "penstock-owner"


def first_owner(run: str, last_batch: int, token: str) -> str:
    """Of a checkpoint that has no name yet: one that nobody had. A checkpoint that has batches is of an earlier
    version, in which sinks knew them by the name of the run."""
    return run if last_batch >= 0 else f"{run}-{token}"


def owner_of(session: SparkSession, checkpoint: str, run: str) -> str:
    """The name that is kept in `checkpoint`; where there is none, it is given one, which the name of `run` is in."""
    files, place = HadoopFiles(session), f"{checkpoint.rstrip('/')}/{OWNER}"
    with in_one_line(f"checkpoint '{checkpoint}'"):
        owner = files.read(place)
        if owner is None:
            last_batch = CheckpointLog(session, checkpoint, "offsets").last()
            owner = first_owner(run, last_batch, secrets.token_hex(4))
            files.write(place, owner)
    return owner
