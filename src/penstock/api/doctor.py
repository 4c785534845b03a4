"""Check this machine: Python, Java, Spark, optional packages, memory, disk, ports and clock, with a remedy for each.

A check returns one `Finding`. Nothing is changed, and only loopback is used.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base import clock
from penstock.base.errors import BadInputError
from penstock.base.extras import is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MIN_PYTHON = (3, 11)
MIN_MEMORY_MB = 2048
"""Memory that embedded Spark and one Python worker need."""
MIN_DISK_MB = 1024
MIN_OPEN_FILES = 1024
MAX_CLOCK_STEP_SECONDS = 86_400.0
"""Seconds by which files of the installation may be newer than the clock."""
USES: Mapping[str, tuple[str, ...]] = {
    "spark": ("pyspark", "pandas", "pyarrow", "psutil", "pyroaring"),
    "control": ("fastapi", "httpx", "prometheus_client", "sqlalchemy", "uvicorn"),
    "kafka": ("confluent_kafka",),
    "plot": ("matplotlib",),
    "solve": ("scipy",),
    "metis": ("pymetis",),
}
"""One module or more of each extra."""
PURPOSES: Mapping[str, str] = {
    "spark": "running and measuring pipelines",
    "control": "the controller",
    "kafka": "topics without Spark's connector",
    "plot": "pictures",
    "solve": "the placer `exact`",
    "metis": "the placer `metis`",
}


class Health(StrEnum):
    """The result of a check."""

    OK = "ok"
    NOTE = "note"
    """Works; something optional is missing."""
    PROBLEM = "problem"
    """Something that most commands need does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with the remedy if there is a problem."""

    name: str
    health: Health
    value: str
    remedy: str = ""

    def document(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return {"name": self.name, "health": str(self.health), "found": self.value, "remedy": self.remedy}


def doctor(folder: Path | str | None = None) -> list[Finding]:
    """Check this machine and return the findings. `folder` is the one to write to; default: the current one."""
    here = Path(folder) if folder is not None else Path.cwd()
    checks: tuple[Callable[[], Finding], ...] = (
        lambda: check_python(sys.version_info[:2], platform.python_version()),
        check_java,
        check_spark,
        *(lambda extra=extra: check_extra(extra) for extra in USES if extra != "spark"),
        lambda: check_memory(available_memory_mb(), os.cpu_count() or 1),
        lambda: check_folder("this folder", here),
        lambda: check_folder("temporary folder", Path(tempfile.gettempdir())),
        check_ports,
        check_host_name,
        check_open_files,
        lambda: check_clock(clock.now(), Path(__file__).stat().st_mtime),
    )
    return [check() for check in checks]


def check_python(numbers: tuple[int, int], text: str) -> Finding:
    if numbers >= MIN_PYTHON:
        return Finding("Python", Health.OK, text)
    wanted = ".".join(map(str, MIN_PYTHON))
    return Finding("Python", Health.PROBLEM, text, f"install Python {wanted} or newer, and Penstock with it")


def check_java() -> Finding:
    from penstock.spark.session.java import ADVICE, find_java, java_version  # noqa: PLC0415 - planning needs no Java

    try:
        path = find_java()
    except BadInputError as error:
        return Finding("Java", Health.PROBLEM, str(error).removesuffix(f"; {ADVICE}"), ADVICE)
    return Finding("Java", Health.OK, f"version {java_version(path)} at {path}")


def check_spark() -> Finding:
    missing = [module for module in USES["spark"] if not is_installed(module)]
    if missing:
        return Finding("Spark", Health.PROBLEM, f"not installed: {', '.join(missing)}", "pip install 'penstock[spark]'")
    return _check_spark_versions(version("pyspark"), version("pandas"))


def _check_spark_versions(spark: str, pandas: str) -> Finding:
    value = f"pyspark {spark}, pandas {pandas}"
    if not spark.startswith("4."):
        return Finding("Spark", Health.PROBLEM, value, "Penstock needs pyspark 4: pip install 'penstock[spark]'")
    if int(pandas.partition(".")[0]) >= 3:
        return Finding("Spark", Health.PROBLEM, value, "Spark needs pandas below 3: pip install 'penstock[spark]'")
    if os.environ.get("SPARK_HOME"):
        home = os.environ["SPARK_HOME"]
        remedy = "unset SPARK_HOME if that is another version than pyspark's"
        return Finding("Spark", Health.NOTE, f"{value}; SPARK_HOME is {home}", remedy)
    return Finding("Spark", Health.OK, value)


def check_extra(extra: str) -> Finding:
    missing = [module for module in USES[extra] if not is_installed(module)]
    name = f"extra {extra}"
    if missing:
        remedy = f"for {PURPOSES[extra]}: pip install 'penstock[{extra}]'"
        return Finding(name, Health.NOTE, f"not installed: {', '.join(missing)}", remedy)
    return Finding(name, Health.OK, ", ".join(_with_version(module) for module in USES[extra]))


def _with_version(module: str) -> str:
    try:
        return f"{module} {version(module.replace('_', '-'))}"
    except PackageNotFoundError:
        return module


def available_memory_mb() -> float | None:
    """Return the memory in MB that programs can still get, by the limits of the container; None if unknown."""
    limits: list[float] = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        limits += [int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="utf-8").strip()
        if limit != "max":
            limits.append((int(limit) - int(used)) / 2**20)
    except (OSError, ValueError):
        pass  # not Linux, or no cgroup: the limits that could be read count
    return min(limits, default=None)


def check_memory(available_mb: float | None, cores: int) -> Finding:
    if available_mb is None:
        return Finding("memory", Health.NOTE, f"{cores} cores; free memory is unknown on this system")
    value = f"{available_mb / 1024:.1f} GB free, {cores} cores"
    if available_mb < MIN_MEMORY_MB:
        remedy = f"Spark needs {MIN_MEMORY_MB / 1024:g} GB: close other programs, or raise the container's limit"
        return Finding("memory", Health.PROBLEM, value, remedy)
    return Finding("memory", Health.OK, value)


def check_folder(name: str, folder: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".penstock-") as file:
            file.write(b"x")
        free_mb = shutil.disk_usage(folder).free / 2**20
    except OSError as error:
        remedy = "choose another folder (cd, or TMPDIR for temporary files), or ask for the right to write there"
        return Finding(name, Health.PROBLEM, f"{folder}: cannot be written: {error.strerror or error}", remedy)
    value = f"{folder}: {free_mb / 1024:.1f} GB free"
    if free_mb < MIN_DISK_MB:
        return Finding(name, Health.PROBLEM, value, f"free {MIN_DISK_MB / 1024:g} GB: Spark writes state and logs")
    return Finding(name, Health.OK, value)


def check_ports() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address[:2], timeout=5):
                pass
    except OSError as error:
        remedy = "loopback connections must be allowed: look at the firewall and at the container's network"
        return Finding("ports", Health.PROBLEM, f"127.0.0.1: {error.strerror or error}", remedy)
    return Finding("ports", Health.OK, "127.0.0.1 can be listened on and reached")


def check_host_name() -> Finding:
    name = socket.gethostname()
    if os.environ.get("SPARK_LOCAL_IP"):
        return Finding("host name", Health.OK, f"SPARK_LOCAL_IP is {os.environ['SPARK_LOCAL_IP']}")
    try:
        address = socket.gethostbyname(name)
    except OSError:
        remedy = f"add '127.0.1.1 {name}' to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1"
        return Finding("host name", Health.NOTE, f"'{name}' has no address", remedy)
    return Finding("host name", Health.OK, f"'{name}' is {address}")


def check_open_files() -> Finding:
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return Finding("open files", Health.NOTE, "the limit is unknown on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < MIN_OPEN_FILES:
        remedy = f"ulimit -n {MIN_OPEN_FILES}" + (" (as root)" if hard < MIN_OPEN_FILES else "")
        return Finding("open files", Health.PROBLEM, f"at most {soft}", remedy)
    return Finding("open files", Health.OK, "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


def check_clock(now: float, installed: float) -> Finding:
    """Report a clock that is before the time at which Penstock was installed."""
    text = clock.date_and_time(now)
    if installed - now > MAX_CLOCK_STEP_SECONDS:
        remedy = "set the clock (timedatectl set-ntp true): leases, checkpoints and tokens compare times"
        return Finding("clock", Health.PROBLEM, f"{text}, which is before Penstock was installed", remedy)
    return Finding("clock", Health.OK, text)


def document(findings: list[Finding]) -> dict[str, Any]:
    """Return the findings as `penstock doctor --json` prints them."""
    return {"ok": all(f.health is not Health.PROBLEM for f in findings), "checks": [f.document() for f in findings]}
