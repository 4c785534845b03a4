"""Jars from Maven's registry, fetched once into the user's cache: a broker, and Spark's own connector to Kafka."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from penstock.errors import ClusterError
from penstock.files import private_folder, temporary_folder

FETCH_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together, as group:artifact:version. `alone`: without what they say they need."""

    name: str
    coordinates: tuple[str, ...]
    alone: bool = False


BROKER = JarSet("kafka-broker-4.3.1", ("org.apache.kafka:kafka_2.13:4.3.1",))
CONNECTOR = JarSet(
    "spark-kafka-4.2.0",
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    alone=True,
)
"""Spark's connector and what it needs that Spark does not have. The version of Spark itself need not be published: this
one runs on 4.3 in micro-batches."""


def jars_folder() -> Path:
    """Where they are kept: that of PENSTOCK_JARS, or one in the user's cache."""
    if configured := os.environ.get("PENSTOCK_JARS"):
        return Path(configured).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return ((Path(cache) if cache else Path.home() / ".cache") / "penstock" / "jars").absolute()


def cached(jars: JarSet) -> list[Path]:
    """Those that were fetched before; none: they were not."""
    return sorted((jars_folder() / jars.name).glob("*.jar"))


def fetch(jars: JarSet) -> list[Path]:
    """From the cache, else by Maven. Raises `ClusterError` with the reason where they cannot be had."""
    if known := cached(jars):
        return known
    maven = shutil.which("mvn")
    if maven is None:
        raise ClusterError(
            f"{jars.coordinates[0]} is not in {jars_folder()}, and there is no Maven (mvn) to fetch it with"
        )
    private_folder(jars_folder())
    with temporary_folder("jars") as scratch:
        (scratch / "pom.xml").write_text(_project(jars), "utf-8")
        command = [
            maven,
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-DoutputDirectory=jars",
        ]
        try:
            done = subprocess.run(  # noqa: S603 - the user's own Maven
                command, cwd=scratch, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"Maven did not fetch {jars.coordinates[0]} within {FETCH_SECONDS:g} s") from error
        if done.returncode or not list((scratch / "jars").glob("*.jar")):
            lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            raise ClusterError(
                f"Maven cannot fetch {jars.coordinates[0]}: {lines[0] if lines else 'it did not say why'}"
            )
        target = jars_folder() / jars.name
        whole = target.with_name(f".{target.name}-{os.getpid()}")
        shutil.copytree(scratch / "jars", whole)
        try:
            whole.rename(target)
        except OSError:  # somebody else was faster
            shutil.rmtree(whole, ignore_errors=True)
    return cached(jars)


def _project(jars: JarSet) -> str:
    """What Maven reads: a project that has nothing but dependencies."""
    none = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    needed = []
    for coordinate in jars.coordinates:
        group, artifact, version = map(escape, coordinate.split(":"))
        needed.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            f"{none if jars.alone else ''}</dependency>"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>penstock</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{''.join(needed)}</dependencies></project>"
    )
