"""A stand-in for driver processes that follows the same files, without Spark."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, pause
from penstock.cluster.topology import Slot
from penstock.control.core.messages import OrderKind, PipelineOrder
from penstock.control.core.records import Submission
from penstock.control.executors.driver_files import DRIVER, DriverProcess, folder_of, get
from penstock.control.executors.driver_processes import DriverExecutors

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.control.core.messages import Observation

STAND_IN = """
import os, sys, time
from pathlib import Path
from penstock.control.core.messages import OrderKind
from penstock.control.executors.driver_files import *
from penstock.control.executors.driver_files import JOB, ORDER, REPORT, DRIVER
from penstock.base.process_identity import own_identity
folder = Path(sys.argv[1])
job = get(DriverJob, folder, JOB)
put(folder, DRIVER, DriverProcess(incarnation=job.incarnation, **dict(own_identity())))
if job.pipeline == "bad":
    print("it cannot be run", flush=True)
    sys.exit(1)
fence = 0
while True:
    order = get(DriverOrder, folder, ORDER)
    if order.fence >= fence:
        fence = order.fence
        if order.kind is not OrderKind.RUN and job.pipeline != "deaf":
            sys.exit(0)
        put(folder, REPORT, DriverReport(incarnation=job.incarnation, state="running", at=time.time(),
            serial=order.serial, nodes={node: 1 for node, _ in order.slots},
            first_tuple=order.serial, readings={"rate": 5.0}))
    time.sleep(0.05)
"""
A, B = Slot("n1", 0), Slot("n2", 0)


def executors_in(folder: Path, **more: Any) -> DriverExecutors:
    script = folder / "stand_in.py"
    script.write_text(STAND_IN)
    return DriverExecutors(folder / "pipelines", command=[sys.executable, str(script)], **more)


def order(pipeline: str = "good", **more: object) -> PipelineOrder:
    first = PipelineOrder("p", 1, 1, OrderKind.RUN, Submission("p", pipeline), (A, B))
    return replace(first, **more)  # type: ignore[arg-type]


def until(executors: DriverExecutors, wanted: Observation, seconds: float = 20.0) -> list[Observation]:
    """Everything seen until that was seen."""
    watch, seen = Stopwatch(), list[object]()
    while wanted not in seen:
        assert watch.seconds() < seconds, seen
        seen += executors.observe(0.0)
        pause(0.05)
    return seen  # type: ignore[return-value]


def pid(executors: DriverExecutors, pipeline: str = "p") -> int:
    driver = get(DriverProcess, folder_of(executors._base, pipeline), DRIVER)
    assert driver is not None
    return driver.pid
