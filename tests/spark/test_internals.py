"""Every declared touch of a private part of Spark, tried on the installed pyspark. A test is named after its touch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyspark
import pytest
from pyspark import java_gateway
from pyspark.sql.types import LongType, StructType

from penstock.base.clock import Stopwatch, pause
from penstock.spark.internals import (
    checkpoint,
    error_messages,
    executors,
    hadoop_files,
    java,
    jdbc,
    listeners,
    plans,
    settings,
    worker_process,
)
from penstock.spark.internals.declarations import declared


class Given(NamedTuple):
    """What a check may use: the session, and a folder of its own."""

    session: Any
    folder: Path


def query_log(given: Given) -> str:
    """Run a stream of one batch; return its checkpoint."""
    (given.folder / "in").mkdir()
    (given.folder / "in" / "0.json").write_text('{"n": 1}\n')
    place = str(given.folder / "checkpoint")
    stream = given.session.readStream.schema("n bigint").json(str(given.folder / "in"))
    writer = stream.writeStream.format("noop").option("checkpointLocation", place)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(60)
    return place


def in_worker(given: Given, look: Callable[[], Mapping[str, str]]) -> dict[str, str]:
    """Return what `look` finds in a Python worker."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = look()
        for _ in batches:
            yield pa.record_batch([pa.array(list(found)), pa.array(list(found.values()))], names=["name", "value"])

    rows = given.session.range(0, 1, 1, 1).mapInArrow(work, "name string, value string").collect()
    return {row.name: row.value for row in rows}


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    watch = Stopwatch()
    while not holds() and watch.seconds() < seconds:
        pause(0.05)
    return holds()


def error_of(work: Callable[[], Any]) -> Exception:
    with pytest.raises(error_messages.spark_errors()) as raised:
        work()
    return raised.value


def java_error_of(given: Given) -> Exception:
    return error_of(lambda: java.java_classes(given.session).java.lang.Class.forName("no.such.Class"))


def has_method(given: Given, class_name: str, method: str, *parameters: int) -> bool:
    """Whether a class of Java's has a public method with one of these numbers of parameters."""
    found = java.java_classes(given.session).java.lang.Class.forName(class_name).getMethods()
    return any(one.getName() == method and len(one.getParameterTypes()) in parameters for one in found)


BACKEND = "org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend"
"""A session that runs its tasks itself has another, without these methods."""


def offsets_are_read(given: Given) -> bool:
    place = query_log(given)
    log = checkpoint.CheckpointLog(given.session, place, "offsets")
    commits = checkpoint.CheckpointLog(given.session, place, "commits")
    return log.numbers() == commits.numbers() == [0] and log.read(0).startswith("v1\n")


def a_last_batch_is_appended(given: Given) -> bool:
    place = query_log(given)
    return checkpoint.append_last_batch(given.session, place) == 1 == checkpoint.closing_batch(given.session, place)


def partitions_are_read(given: Given) -> bool:
    log = checkpoint.CheckpointLog(given.session, query_log(given), "offsets")
    return checkpoint.partitions_in(log.read(0)) == int(given.session.conf.get(settings.PARTITIONS))


def a_cause_is_there(given: Given) -> bool:
    def fail(_: Any) -> None:
        raise KeyError("lost it")

    error = error_of(lambda: given.session.sparkContext.parallelize([1], 1).foreach(fail))
    captured = error_of(lambda: given.session.range(1).selectExpr("assert_true(id > 5, 'too small')").collect())
    return isinstance(getattr(captured, "_stackTrace", None), str) and "lost it" in str(error)


def profiles_are_replaced(given: Given) -> bool:
    asked, answered = (executors.scala_profile(given.session, 512, ["slot"]) for _ in range(2))
    executors.pretend_default_profile(given.session, asked, answered)
    manager = java.java_context(given.session).resourceProfileManager()
    return int(manager.resourceProfileFromId(asked.id()).id()) == 0 != int(asked.id())


def profiles_of_scala(given: Given) -> bool:
    text = executors.scala_profile(given.session, 512, ["slot", "node.a"]).toString()
    return "node.a" in text and "512" in text


def executors_say_what_they_hold(given: Given) -> bool:
    return executors.executor_resources(given.session, ["slot"]) == {"driver": set()}


def files_of_hadoop(given: Given) -> bool:
    files, root = hadoop_files.HadoopFiles(given.session), str(given.folder)
    files.write(f"{root}/a b%.txt", "text")
    assert files.make_folder(f"{root}/below")
    files.touch(f"{root}/below/empty")
    assert (files.read(f"{root}/a b%.txt"), files.read(f"{root}/none")) == ("text", None)
    assert files.rename(f"file:{root}/a b%.txt", f"{root}/below", "b %.txt")
    assert files.names(root) == ["below"]
    assert sorted(name for _, name in files.matching(f"{root}/below/*")) == ["b %.txt", "empty"]
    assert "b %.txt" in files.text_of_matching(f"{root}/below/*")
    assert {(below, name, size) for _, below, name, size in files.files_below(root)} == {
        ("/below", "b %.txt", 4),
        ("/below", "empty", 0),
    }
    with files.on_this_machine(f"{root}/below", ".txt") as here:
        assert [path.read_text() for path in here] == ["text"]
    files.delete(f"{root}/below")
    return not files.exists(f"{root}/below")


def statements_of_jdbc(given: Given) -> bool:
    database = jdbc.Jdbc(given.session, {"url": "jdbc:derby:memory:touched;create=true", "dbtable": "t"})
    with database.connection() as connection:
        assert not connection.getAutoCommit()
        connection.prepareStatement(f"CREATE TABLE t ({database.columns(given.session.range(1))})").execute()
        connection.commit()
    return database.quoted(["id"]) == '"id"'


def passes_are_counted(given: Given) -> bool:
    ensure_callbacks: Any = java_gateway.ensure_callback_server_started
    ensure_callbacks(given.session.sparkContext._gateway)
    passes = listeners.PassCounter(given.session)
    name, frame = passes.observed(given.session.newSession().range(0, 10, 1, 2))
    frame.write.format("noop").mode("overwrite").save()
    return passes.counts(name) == {listeners.ROWS: 10}


def progress_is_heard(given: Given) -> bool:
    heard: list[dict[str, Any]] = []
    listener = listeners.progress_listener(given.session, heard.append)
    given.session.streams.addListener(listener)
    try:
        query_log(given)
        return eventually(lambda: any(one["numInputRows"] == 1 for one in heard))
    finally:
        given.session.streams.removeListener(listener)


def formats_are_seen(given: Given) -> bool:
    rate = given.session.readStream.format("rate").load()
    files = given.session.readStream.schema("n bigint").option("cleanSource", "delete").json(str(given.folder))
    both = rate.selectExpr("value AS n").unionByName(rate.selectExpr("value AS n"))
    assert plans.stream_formats(files) == ["a folder with cleanSource=delete"]
    return plans.stream_formats(both) == ["rate", "rate"] and plans.stream_formats(given.session.range(1)) == []


def watermarks_are_seen(given: Given) -> bool:
    rate = given.session.readStream.format("rate").load()
    return plans.has_watermark(rate.withWatermark("timestamp", "1 second")) and not plans.has_watermark(rate)


def formats_are_found(given: Given) -> bool:
    plans.check_format_exists(given.session, "parquet")
    return "nothing_like_it" in str(error_of(lambda: plans.check_format_exists(given.session, "nothing_like_it")))


def schemas_become_arrow(_: Given) -> bool:
    schema = plans.arrow_of(StructType().add("n", LongType()).add("t", "timestamp"), "Europe/Oslo")
    return [schema.field("n").type, schema.field("t").type] == [pa.int64(), pa.timestamp("us", "Europe/Oslo")]


def schemas_of_arrow(_: Given) -> bool:
    return plans.struct_of_arrow(pa.schema([("n", pa.int64())])) == StructType().add("n", LongType())


def checkpoints_are_renamed(given: Given) -> bool:
    (name,) = settings.checkpoint_settings(pyspark.__version__).values()
    assert given.session.conf.get("spark.sql.streaming.checkpointFileManagerClass") == name
    return str(java.java_classes(given.session).java.lang.Class.forName(name).getName()) == name


def workers_are_forked_from_ours(given: Given) -> bool:
    def look() -> dict[str, str]:
        import gc
        import sys

        return {
            "loaded": str("penstock.spark.region_function" in sys.modules),
            "frozen": str(gc.get_freeze_count() > 0),
        }

    return in_worker(given, look) == {"loaded": "True", "frozen": "True"}


def workers_have_unix_sockets(given: Given) -> bool:
    def look() -> dict[str, str]:
        import os

        return {"parent": str(os.getppid())}

    sockets = psutil.Process(int(in_worker(given, look)["parent"])).net_connections("inet")
    return [made for made in sockets if made.status == psutil.CONN_LISTEN] == []


def a_worker_closes_what_it_opened(given: Given) -> bool:
    left = given.folder / "closed"

    def look() -> dict[str, str]:
        import os

        from penstock.spark.internals.worker_process import close_at_end

        close_at_end(left.touch)
        return {"worker": str(os.getpid())}

    # the first task wraps what runs the next
    workers = {in_worker(given, look)["worker"] for _ in range(2)}
    for worker in workers:
        os.kill(int(worker), signal.SIGTERM)
    return eventually(left.exists)


def workers_leave_out_archives(given: Given) -> bool:
    def look() -> dict[str, str]:
        import os
        import sys

        return {"path": "\n".join(sys.path), "given": os.environ.get("PYTHONPATH", "").replace(os.pathsep, "\n")}

    found = in_worker(given, look)
    put_there = [place for place in found["given"].splitlines() if worker_process._is_sparks(place)]
    kept = [place for place in found["path"].splitlines() if worker_process._is_sparks(place)]
    return bool(put_there) and kept == []


def pickled_and_back(_: Given) -> bool:
    def add(number: int) -> int:
        return number + 1

    return bool(worker_process.unpickled(worker_process.pickled(add))(1) == 2)


ENDS = """
import psutil, sys
from pathlib import Path
from penstock.spark.internals.java import has_context, java_pid
from penstock.spark.session.embedded import end_session, start_session
for number in range(2):
    session = start_session(1, Path(sys.argv[1]) / f"java-{number}.log")
    pid = java_pid(session)
    assert has_context()
    end_session(session)
    assert not has_context() and not psutil.pid_exists(pid), "Java is still there"
print("ended twice")
"""


@cache
def sessions_end(folder: Path) -> str:
    answer = subprocess.run([sys.executable, "-c", ENDS, str(folder)], capture_output=True, text=True, check=False)
    return answer.stdout + answer.stderr


def java_ends(given: Given) -> bool:
    """In a process of its own: two sessions, one after the other."""
    said = sessions_end(given.folder.parent)
    assert said == "ended twice\n", said
    return True


CHECKS: dict[str, Callable[[Given], bool]] = {
    "checkpoint.CheckpointLog": offsets_are_read,
    "checkpoint.append_last_batch": a_last_batch_is_appended,
    "checkpoint.partitions_in": partitions_are_read,
    "error_messages.java_error": lambda given: isinstance(java_error_of(given), error_messages.java_error()),
    "error_messages.root_cause": a_cause_is_there,
    "error_messages.spark_errors": lambda given: "no.such.Class" in str(java_error_of(given)),
    "executors.executor_hosts": lambda given: (
        executors.executor_hosts(given.session) == {"driver": given.session.conf.get("spark.driver.host")}
    ),
    "executors.executor_ids": lambda given: executors.executor_ids(given.session) == [],
    "executors.executor_resources": executors_say_what_they_hold,
    "executors.kill_executors": lambda given: has_method(given, BACKEND, "killExecutors", 4),
    "executors.pretend_default_profile": profiles_are_replaced,
    "executors.request_executors": lambda given: executors.request_executors(given.session, 1) is None,
    "executors.request_executors_by_profile": lambda given: has_method(given, BACKEND, "requestTotalExecutors", 3),
    "executors.request_pinned": lambda given: has_method(given, BACKEND, "doRequestTotalExecutors", 1),
    "executors.scala_profile": profiles_of_scala,
    "hadoop_files.HadoopFiles": files_of_hadoop,
    "java.analysed_plan": lambda given: "Range" in java.analysed_plan(given.session.range(7)).toString(),
    "java.end_java": java_ends,
    "java.default_file_system": lambda given: java.default_file_system(given.session) == "file:///",
    "java.forget_java": java_ends,
    "java.hadoop_configuration": lambda given: (
        java.hadoop_configuration(given.session).get("fs.defaultFS") == "file:///"
    ),
    "java.has_context": lambda _: java.has_context(),
    "java.java_classes": lambda given: java.java_classes(given.session).java.lang.Math.abs(-3) == 3,
    "java.java_context": lambda given: (
        java.java_context(given.session).applicationId() == given.session.sparkContext.applicationId
    ),
    "java.java_pid": lambda given: "java" in psutil.Process(java.java_pid(given.session)).name(),
    "java.java_session": lambda given: java.java_session(given.session).version() == pyspark.__version__,
    "java.parsed_megabytes": lambda given: java.parsed_megabytes(given.session, "2g") == 2048,
    "java.parsed_seconds": lambda given: java.parsed_seconds(given.session, "2min") == 120,
    "jdbc.Jdbc": statements_of_jdbc,
    "listeners.PassCounter": passes_are_counted,
    "listeners.progress_listener": progress_is_heard,
    "plans.arrow_of": schemas_become_arrow,
    "plans.check_format_exists": formats_are_found,
    "plans.has_watermark": watermarks_are_seen,
    "plans.stream_formats": formats_are_seen,
    "plans.struct_of_arrow": schemas_of_arrow,
    "settings.checkpoint_settings": checkpoints_are_renamed,
    "settings.daemon_settings": workers_are_forked_from_ours,
    "settings.socket_settings": workers_have_unix_sockets,
    "worker_process.become_daemon": workers_are_forked_from_ours,
    "worker_process.close_at_end": a_worker_closes_what_it_opened,
    "worker_process.leave_out_spark_archives": workers_leave_out_archives,
    "worker_process.pickled": pickled_and_back,
    "worker_process.unpickled": pickled_and_back,
}


def test_every_touch_is_tried() -> None:
    assert sorted(CHECKS) == [touch.name for touch in declared()]


@pytest.mark.parametrize("touch", declared(), ids=lambda touch: touch.name)
def test_touch(touch: Any, session: Any, tmp_path: Path) -> None:
    release, oldest = (settings.release_of(version) for version in (pyspark.__version__, min(touch.tried)))
    if release < oldest:
        pytest.skip(f"{touch.name}: not used before Spark {min(touch.tried)}")
    moved = f"{touch.name}: Spark {pyspark.__version__} has moved {touch.part}"
    try:
        works = CHECKS[touch.name](Given(session, tmp_path))
    except Exception as error:
        raise AssertionError(f"{moved}: {error}") from error
    assert works, moved
