"""The machine that models are measured on here."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

from penstock.cluster.cores import cores_here
from penstock.modelling.model import MeasuredOn


def this_machine() -> MeasuredOn:
    """CPU, cores and the version of Spark that is installed (which is not loaded for this)."""
    return MeasuredOn(cpu=_cpu(), cores=cores_here(), spark=_spark())


def _cpu() -> str:
    """Return the processor's own name if the system gives it (Linux), else the kind of processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, [*names, platform.processor(), platform.machine()]), "unknown")


def _spark() -> str | None:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None
