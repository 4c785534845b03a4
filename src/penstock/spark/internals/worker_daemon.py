"""The process that Spark's Python workers are forked from, with everything they need loaded once.

A worker that has to import Arrow, numpy and this package itself takes a second of CPU to start; forked from here it
takes milliseconds. Spark runs this module in place of its own daemon, which it then becomes.
"""

from __future__ import annotations

import gc
import runpy

from penstock.spark.internals.worker_process import leave_out_spark_archives

if __name__ == "__main__":
    leave_out_spark_archives()
    import numpy as np  # noqa: F401 - loaded for the workers
    import pyarrow as pa  # noqa: F401 - loaded for the workers

    import penstock.spark.load_source
    import penstock.spark.region_function  # noqa: F401 - loaded for the workers

    # What is loaded stays: Spark's workers collect garbage after every task, and to look at all this takes 30 to 50 ms
    # of CPU each time, as much as a whole batch of few tuples.
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__")
