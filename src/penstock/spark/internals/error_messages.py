"""Errors of Spark, in one line with a remedy."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, PenstockError, RunFailedError
from penstock.dataflow.formats import find_format
from penstock.dataflow.secrets import redact
from penstock.spark.internals.declarations import touches

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACEBACK = "Traceback (most recent call last)"
WRITE_FAILED = "Task failed while writing rows"
"""Message of a sink that could be written when the run began."""

_CODE = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_JAVA = re.compile(r"^(?:(?:[\w$]+\.)+[\w$]*(?:Exception|Error):\s*)+")
_CAUSE = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)


BY_PY4J = "PySpark turns some errors of Java's into its own, and lets the others through as py4j made them."


@touches("py4j.protocol.Py4JJavaError", BY_PY4J)
def java_error() -> type[Exception]:
    """Return the class of errors that Java raised, for an `except`; Spark loads only when it is used."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415

    kind: type[Exception] = Py4JJavaError
    return kind


@touches("py4j.protocol.Py4JError", BY_PY4J)
def spark_errors() -> tuple[type[Exception], ...]:
    """Return the classes of all that calls of Spark raise, for an `except`."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    return PySparkException, Py4JError


def captured_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors with a message of Java's, for an `except`."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark loads only when it is used

    return PySparkException, java_error()


def first_line(error: object) -> str:
    """Return the line with the cause, without Spark's error code, Java's class names and the stack after it. `error` is
    an error of Spark's, or an exception of Java's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    line = _CODE.sub("", _JAVA.sub("", line))
    return redact(line.partition(" SQLSTATE:")[0].rstrip())


@touches("`_stackTrace` of captured errors", "The cause of an error is in the stack of Java only.")
def root_cause(error: object) -> str | None:
    """Return the deepest cause in Java's stack: a task that could not write does not itself mention that the disk is
    full. None if there is no other."""
    causes = _CAUSE.findall(getattr(error, "_stackTrace", None) or str(error))
    return first_line(causes[-1]) if causes else None


class CodeFailedError(RunFailedError):
    """Raised by the pipeline's own code, in a worker."""


NOT_THERE = ": workers of this session run another Python; set PYSPARK_PYTHON to this one before the session starts"
"""Message for a module that every worker imports first."""


def raised_by_code(text: str) -> str | None:
    """Return the end of a worker's traceback in `text`: the first line after it that is not indented. None: no Python
    code raised it."""
    _, marker, rest = text.rpartition(TRACEBACK)
    if not marker:
        return None
    lines = [line for line in rest.splitlines()[1:] if line.strip()]
    line = next((line.strip() for line in lines if not line[0].isspace()), None)
    if line is None:
        return None
    # the text of a StoppedError already names the operator
    complaint = re.sub(r"^(?:\w+\.)*(?:StoppedError: )?", "", line)
    complaint = redact(complaint)
    return f"{complaint}{NOT_THERE}" if "No module named 'penstock'" in complaint else complaint


@contextmanager
def raised_in_code(who: str, failure: type[BadInputError] | type[RunFailedError]) -> Iterator[None]:
    """Turn an exception of a user's function, here in the driver, into a `failure` in one line that names `who`. Errors
    of Spark's stay as they are, for `in_one_line`."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:  # whatever the user's code raises
        if isinstance(error, spark_errors()):
            raise
        text = " ".join(str(error).split())
        raise failure(redact(f"{who}: {type(error).__name__}{f': {text}' if text else ''}")) from error


@contextmanager
def in_one_line(who: str, format: str | None = None) -> Iterator[None]:  # noqa: A002 - Spark's word
    """Turn an error of Spark's into one line that names `who`, or, for a format it does not have, the package with it.
    Code that raised in a worker is not blamed on `who`, nor is a task that was tried too often bad input."""
    try:
        yield
    except captured_errors() as error:
        line = first_line(getattr(error, "java_exception", error) if isinstance(error, java_error()) else error)
        if (raised := raised_by_code(str(error))) is not None:
            raise CodeFailedError(raised) from error
        if "stage failure" in str(error) or WRITE_FAILED in line:
            cause = root_cause(error)
            because = "" if cause is None or cause in line else f": {cause}"
            raise RunFailedError(f"{who}: {line.rstrip('.')}{because}") from error
        hint = ""
        package = find_format(format).spark_package if format else ""
        if package and ("find" in line or "class" in line.lower()):
            hint = f"; it needs a package: --packages {package}:VERSION"
        if "No suitable driver" in line:
            hint = "; bring its jar (--packages), and name its class: options: driver"
        raise BadInputError(f"{who}: {line}{hint}") from error
