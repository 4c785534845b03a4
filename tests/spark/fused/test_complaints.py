"""What Spark complains of, in one line. No Spark is started."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import BadInputError
from penstock.dataflow.formats import Reading
from penstock.engines.fused.sources import topics
from penstock.spark.internals.error_messages import NOT_THERE, first_line, raised_by_code, root_cause

IN_WORKER = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
  File "segment.py", line 2, in process
    raise failure
{error}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            IN_WORKER.format(error="penstock.runtime.dead_letters.StoppedError: operator 'a': ValueError: no"),
            "operator 'a': ValueError: no",
        ),
        (IN_WORKER.format(error="ValueError: no"), "ValueError: no"),
        (IN_WORKER.format(error="json.decoder.JSONDecodeError: no"), "JSONDecodeError: no"),
        (
            IN_WORKER.format(error="ModuleNotFoundError: No module named 'penstock'"),
            f"ModuleNotFoundError: No module named 'penstock'{NOT_THERE}",
        ),
        ("Job aborted due to stage failure: Task 0 failed 8 times", None),
    ],
)
def test_what_code_raised_is_found_behind_its_traceback(text: str, expected: str | None) -> None:
    assert raised_by_code(text) == expected


class JavaException:
    """As py4j shows one: it has a member of every name."""

    def __getattr__(self, name: str) -> object:
        return object()

    def __str__(self) -> str:
        return "org.apache.spark.SparkClassNotFoundException: [NOT_FOUND] No source: odd. SQLSTATE: 42K02\n\tat"


def test_an_exception_of_javas_says_what_it_says() -> None:
    assert first_line(JavaException()) == "No source: odd."


def test_what_was_behind_a_failure_is_the_last_cause() -> None:
    trace = """org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/out.
\tat org.apache.spark.sql.Something(X.scala:1)
Caused by: org.apache.spark.SparkException: another
\tat org.apache.spark.sql.Something(X.scala:2)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
    assert root_cause(trace) == "No space left on device"
    assert root_cause("org.apache.spark.SparkException: alone\n\tat x") is None


def test_topics_of_ours_need_a_newer_spark_than_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "find_spec", lambda _name: None)
    no_session: Any = None
    with pytest.raises(BadInputError, match=r"^source 's': Penstock's own reader of topics needs pyspark 4\.2"):
        topics.read_topics(no_session, Reading("log", {"path": "x", "subscribe": "t"}), "source 's'", 1, None)
