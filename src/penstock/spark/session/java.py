"""Find a Java that Spark 4 can run on, and the Spark of this installation."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.base.errors import BadInputError
from penstock.base.extras import missing_package
from penstock.spark.internals.class_archive import archive_file

LOWEST_VERSION = 17

ADVICE = (
    f"Spark needs Java {LOWEST_VERSION} or newer; install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17) or set JAVA_HOME"
)


def java_version(executable: str) -> int | None:
    """The major version `executable` says it is; None if it does not run or does not say."""
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 - the user's own Java
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if version is None:
        return None
    major = int(version.group(1))
    return int(version.group(2) or 0) if major == 1 else major


def find_java() -> str:
    """The path of a suitable Java: that of JAVA_HOME, or the one on the PATH. Planning never asks."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [on_path] if (on_path := shutil.which("java")) else []
    seen = []
    for candidate in candidates:
        version = java_version(candidate)
        if version is not None and version >= LOWEST_VERSION:
            return candidate
        seen.append(f"{candidate} is {f'version {version}' if version else 'not a Java that runs'}")
    raise BadInputError("; ".join([*seen, ADVICE]) if seen else f"no Java found; {ADVICE}")


def spark_home() -> Path:
    """Return the folder of pip's pyspark, which holds all of Spark."""
    package = importlib.util.find_spec("pyspark")
    if package is None or not package.submodule_search_locations:
        raise missing_package("pyspark")
    return Path(package.submodule_search_locations[0])


def java_home() -> Path:
    return Path(find_java()).resolve().parent.parent


def classes_of_spark() -> Path:
    """Return the archive of classes of the Java and the Spark that processes of a cluster use; it may not exist."""
    return archive_file(java_home(), spark_home(), importlib.metadata.version("pyspark"))
