"""Jars from Maven's registry, fetched once into the user's cache: a broker, and Spark's own connector to Kafka."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from xml.sax.saxutils import escape

from penstock.base.errors import ClusterError
from penstock.base.files import private_folder, temporary_folder

FETCH_SECONDS = 600.0
SUMS = Path(__file__).with_name("jars.sha256")
"""Lines of `SHA-256  SET/NAME.jar`, as sha256sum writes them. A set that is listed is taken only if it holds exactly
these jars."""


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
    """From the cache, else by Maven. Raises `ClusterError` with the reason where they cannot be had, or are not those
    whose sums are kept here."""
    if known := cached(jars):
        check_sums(jars, known)
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
            "--strict-checksums",
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
        check_sums(jars, sorted((scratch / "jars").glob("*.jar")))
        target = jars_folder() / jars.name
        whole = target.with_name(f".{target.name}-{os.getpid()}")
        shutil.copytree(scratch / "jars", whole)
        try:
            whole.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(whole, ignore_errors=True)
    return cached(jars)


def check_sums(jars: JarSet, files: list[Path]) -> None:
    """Raise ClusterError if jars of a listed set are missing, unknown or changed."""
    rows = (line.split() for line in SUMS.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    expected = {name.partition("/")[2]: digest for digest, name in rows if name.partition("/")[0] == jars.name}
    if not expected:
        return
    wrong = sorted(expected.keys() ^ {file.name for file in files})
    for file in files:
        with file.open("rb") as opened:
            if file.name not in wrong and file_digest(opened, "sha256").hexdigest() != expected[file.name]:
                wrong.append(file.name)
    if wrong:
        where = files[0].parent if files else jars_folder() / jars.name
        raise ClusterError(f"{where}: not the jars of {jars.name} by their sums: {', '.join(wrong)}; remove the folder")


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
