"""A session of the user's own: used, and left as it was."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.base.errors import BadInputError


def checked_session(session: object) -> SparkSession:
    """What a run needs of Spark's driver (accumulators, executors, Hadoop's file systems) only a classic one has."""
    if "connect" in type(session).__module__:
        raise BadInputError(
            "session: a Spark Connect session cannot carry what a run needs of Spark's driver (accumulators, "
            "executors, Hadoop's file systems); give a classic session, or none"
        )
    if not isinstance(session, SparkSession):
        raise BadInputError(f"session: expected a SparkSession, found {type(session).__name__}")
    return session
