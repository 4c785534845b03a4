"""The process that the Python workers of a slot are forked from, with all that a bundle needs loaded once.

A bundle that has to import it takes seconds of CPU to start; forked from here it takes milliseconds.
"""

from __future__ import annotations

from penstock.spark.internals.worker_process import become_daemon, leave_out_spark_archives

if __name__ == "__main__":
    leave_out_spark_archives()
    import pandas as pd  # noqa: F401 - loaded for the workers
    import pyarrow.dataset as ds  # noqa: F401 - loaded for the workers

    import penstock.engines.placed.launchers  # noqa: F401 - loaded for the workers

    become_daemon()
