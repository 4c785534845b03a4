"""`python -m penstock.spark.session.make_archive`: makes the archive of Spark's classes now, where there is none, and
not at the end of the first run. A set-up that is going to start Spark often does this first."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clock import pause
from penstock.errors import PenstockError
from penstock.spark.session.embedded import embedded_session, own_archive
from penstock.spark.session.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10


def load_classes(session: SparkSession) -> None:
    """A short query of every kind that runs are made of: streams, Python code, files."""
    frame = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    code = frame.mapInArrow(lambda batches: batches, "timestamp timestamp, value bigint")
    query = (
        code.writeStream.foreachBatch(lambda batch, _: batch.write.format("noop").mode("append").save())
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        while query.isActive and not query.lastProgress:
            pause(0.1)
    finally:
        query.stop()


def main() -> int:
    try:
        os.environ.setdefault("JAVA_HOME", str(Path(find_java()).resolve().parent.parent))
        if not own_archive().exists():
            with embedded_session(1) as session:
                load_classes(session)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
