"""The process that Spark's Python workers are forked from, with everything they need loaded once.

A worker that has to import Arrow, numpy and this package itself takes a second of CPU to start; forked from here it
takes milliseconds. Spark runs this module in place of its own daemon, which it then becomes.
"""

from __future__ import annotations

from penstock.spark.internals.worker_process import become_daemon, leave_out_spark_archives

if __name__ == "__main__":
    leave_out_spark_archives()
    import numpy as np  # noqa: F401 - loaded for the workers
    import pyarrow as pa  # noqa: F401 - loaded for the workers

    import penstock.spark.load_source
    import penstock.spark.region_function  # noqa: F401 - loaded for the workers

    become_daemon()
