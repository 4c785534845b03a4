"""The Java process of a session: the way to its objects, its id, and its end."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from penstock.spark.internals.declarations import touches

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

NO_JAVA = "PySpark has no public way to call Java; without it the parts below cannot be reached at all."


@touches("`SparkContext._jvm`, the view of Java's classes", NO_JAVA)
def java_classes(session: SparkSession) -> Any:
    return session.sparkContext._jvm


@touches("`SparkContext._jsc.sc()`, the SparkContext of Scala", NO_JAVA)
def java_context(session: SparkSession) -> Any:
    context: Any = session.sparkContext._jsc
    return context.sc()


@touches("`SparkSession._jsparkSession`, the session of Scala", NO_JAVA)
def java_session(session: SparkSession) -> Any:
    return session._jsparkSession


@touches("`DataFrame._jdf.queryExecution().analyzed()`, the analysed plan", NO_JAVA)
def analysed_plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


@touches("`SparkContext._jsc.hadoopConfiguration()`", "Hadoop's settings of a session are not in its own settings.")
def hadoop_configuration(session: SparkSession) -> Any:
    context: Any = session.sparkContext._jsc
    return context.hadoopConfiguration()


@touches(
    "`SparkContext._jsc.hadoopConfiguration()`: fs.defaultFS", "Hadoop's files may name it, Spark's settings do not."
)
def default_file_system(session: SparkSession) -> str:
    """Return the URI of the file system on which a path without a scheme lies."""
    return str(hadoop_configuration(session).get("fs.defaultFS"))


@touches("`SparkContext._jvm`: java.lang.ProcessHandle", "No API says which process the driver's Java is.")
def java_pid(session: SparkSession) -> int:
    """Return the process id of the driver's Java. `spark-submit` starts Java before Python, so it may be no child."""
    return int(java_classes(session).java.lang.ProcessHandle.current().pid())


@touches("org.apache.spark.network.util.JavaUtils", "Spark's rules for '10s' and '1g' have no public form in Python.")
def parsed_seconds(session: SparkSession, text: str) -> int:
    return int(java_classes(session).org.apache.spark.network.util.JavaUtils.timeStringAsSec(text))


@touches("org.apache.spark.network.util.JavaUtils", "Spark's rules for '10s' and '1g' have no public form in Python.")
def parsed_megabytes(session: SparkSession, text: str) -> int:
    return int(java_classes(session).org.apache.spark.network.util.JavaUtils.byteStringAsMb(text))


@touches("`SparkContext._active_spark_context`", "`getOrCreate` adopts a context and does not say that it did.")
def has_context() -> bool:
    """Return whether this process has a SparkContext already."""
    from pyspark import SparkContext  # noqa: PLC0415 - Spark loads only when it is used

    return SparkContext._active_spark_context is not None


@touches(
    "`SparkContext._gateway`, its `proc` and `shutdown`",
    "`SparkSession.stop` leaves the Java process, and with it everything it holds, until Python ends.",
)
def end_java(session: SparkSession, stop: Callable[[], None], seconds: float, ended: Callable[[], None]) -> None:
    """Call `stop`, then end the Java process if this process started it. `ended` is called if it ended in time."""
    gateway: Any = session.sparkContext._gateway
    try:
        stop()
    finally:
        if gateway.proc is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            try:
                gateway.proc.wait(timeout=seconds)
                ended()
            except subprocess.TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait()
            forget_java()


@touches(
    "`SparkContext._gateway`, `_jvm` and `_active_spark_context`",
    "A process whose Java is gone keeps its address, and cannot start another session.",
)
def forget_java() -> None:
    """Forget a Java process that has ended, and the context in it."""
    from pyspark import SparkContext  # noqa: PLC0415 - Spark loads only when it is used

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
