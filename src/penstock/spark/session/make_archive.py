"""`python -m penstock.spark.session.make_archive`: makes the archive of Spark's classes, where there is none. A set-up
that is going to start Spark often does this first, and so does `up`. Nobody else does: Java takes half a minute longer
for a session in which it makes one, and would be measured while it is busy with that."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.clock import pause
from penstock.base.errors import PenstockError
from penstock.base.files import temporary_folder
from penstock.spark.internals.class_archive import making
from penstock.spark.session.embedded import embedded_session, own_archive
from penstock.spark.session.java import classes_of_spark, find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10

_LOG = logging.getLogger(__name__)


def load_classes(session: SparkSession) -> None:
    """A short query of every kind that runs are made of: streams, Python code, files."""
    frame = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    code = frame.mapInArrow(lambda batches: batches, "timestamp timestamp, value bigint")
    with temporary_folder("classes") as folder:

        def write(batch: DataFrame, _: int) -> None:
            batch.write.format("noop").mode("append").save()
            batch.selectExpr("to_json(struct(*)) AS value").write.mode("append").parquet(str(folder / "rows"))

        query = code.writeStream.foreachBatch(write).trigger(processingTime="0 seconds").start()
        try:
            while query.isActive and not query.lastProgress:
                pause(0.1)
        finally:
            query.stop()


def make_where_there_is_none() -> None:
    """Once on this machine: every process that is started from then on takes half as long."""
    if not classes_of_spark().is_file():
        make_in_a_process()


def make_in_a_process() -> None:
    """This process may have a session of its own, or none at all. Without an archive everything works, only slower."""
    made = subprocess.run([sys.executable, "-P", "-m", __name__], check=False, capture_output=True, text=True)  # noqa: S603
    if made.returncode:
        _LOG.info("no archive of Spark's classes: %s", made.stderr.strip())


def main() -> int:
    try:
        os.environ.setdefault("JAVA_HOME", str(Path(find_java()).resolve().parent.parent))
        if making(own_archive())[1] is not None:
            # the classes of executors are among those of a session that runs its tasks itself
            with embedded_session(1, makes_archive=True) as session:
                load_classes(session)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
