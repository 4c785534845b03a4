"""A session the user has is never adopted: it is refused before anything is started or changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.errors import BadInputError
from penstock.spark.session.embedded import start_session
from penstock.spark.session.own import checked_session


def test_a_session_of_the_user_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    theirs = object()
    monkeypatch.setattr(SparkContext, "_active_spark_context", theirs)
    with pytest.raises(BadInputError, match="has a Spark session already, which is left alone"):
        start_session(1, tmp_path / "java.log")
    assert SparkContext._active_spark_context is theirs
    assert not (tmp_path / "java.log").exists()


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        ("pyspark.sql.connect.session", "a Spark Connect session cannot carry what a run needs"),
        ("my.session", "expected a SparkSession, found SparkSession"),
    ],
)
def test_a_session_that_will_not_do_is_refused(module: str, complaint: str) -> None:
    theirs = type("SparkSession", (), {"__module__": module})()
    with pytest.raises(BadInputError, match=f"^session: {complaint}"):
        checked_session(theirs)
