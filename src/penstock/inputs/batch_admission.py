"""Find out how many rows a micro-batch takes in of every source, from the options of sources and the files there."""

from __future__ import annotations

import os
from glob import iglob
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.text import is_whole
from penstock.dataflow.endpoints import is_driven_by_load, most_per_batch, reading_of
from penstock.dataflow.formats import find_format
from penstock.planning.prediction.fused import BatchAdmission

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.endpoints import Reading
    from penstock.dataflow.pipeline import Pipeline

MAX_SAMPLED_FILES = 8
"""Files that are looked into, the first by name."""
SAMPLED_BYTES = 1_000_000
"""Bytes of a text file that are looked into; the rest is taken to be alike."""
_UNLIMITED = BatchAdmission(own_source=True)


def admission_of(pipeline: Pipeline, folder: Path | None = None) -> BatchAdmission:
    """Return the rows that a batch takes in of every source. Of several sources the one that admits least decides.
    Relative paths are those of `folder`, else of the current one."""
    if is_driven_by_load(pipeline):
        return BatchAdmission()
    admitted = [_of_source(name, reading_of(pipeline.operators[name]), folder) for name in pipeline.sources]
    unknown = next((admission for admission in admitted if admission.unknown), None)
    if unknown is not None:
        return unknown
    limits = [admission.rows for admission in admitted if admission.rows is not None]
    return BatchAdmission(own_source=True, rows=min(limits)) if limits else _UNLIMITED


def _of_source(name: str, reading: Reading, folder: Path | None) -> BatchAdmission:
    form, options = find_format(reading.format), {key.lower(): value for key, value in reading.options.items()}
    if reading.of_the_user:
        return _unknown(name, "its rows come from a function of the pipeline; use format=, or run it")
    if form.is_log:
        return BatchAdmission(own_source=True, rows=most_per_batch(reading.options, f"source '{name}'"))
    if form.is_files:
        return _of_files(name, form.name, options, folder)
    if form.name == "rate-micro-batch" and is_whole(options.get("rowsperbatch", "")):
        return BatchAdmission(own_source=True, rows=int(options["rowsperbatch"]))
    if form.name in {"rate", "socket"}:
        return _UNLIMITED
    return _unknown(name, f"format '{reading.format}' decides by itself; run it, and compare")


def _of_files(name: str, form: str, options: Mapping[str, str], folder: Path | None) -> BatchAdmission:
    files, size = options.get("maxfilespertrigger"), options.get("maxbytespertrigger")
    if files is None and size is None:
        return _UNLIMITED
    sampled = list(islice(_files_at(options.get("path", ""), folder), MAX_SAMPLED_FILES))
    counts = [rows for file in sampled if (rows := rows_of_file(file, form, options)) is not None]
    if not counts or not sum(counts):
        return _unknown(name, "no file is there whose rows could be counted; put one there")
    mean_rows = sum(counts) / len(counts)
    if files is not None and is_whole(files):
        return BatchAdmission(own_source=True, rows=max(1, round(int(files) * mean_rows)))
    if size is not None and is_whole(size):
        mean_bytes = max(1.0, sum(file.stat().st_size for file in sampled) / len(sampled))
        return BatchAdmission(own_source=True, rows=max(1, round(int(size) * mean_rows / mean_bytes)))
    return _unknown(name, "maxFilesPerTrigger or maxBytesPerTrigger is not a whole number")


def _unknown(source: str, reason: str) -> BatchAdmission:
    return BatchAdmission(own_source=True, unknown=f"how many rows of source '{source}' a batch takes in: {reason}")


def _files_at(path: str, folder: Path | None) -> list[Path]:
    """Files of a path, a folder or a pattern, as Spark reads them: without hidden ones."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme.lower() != "file":
        return []
    place = os.path.join(folder or "", rest if colon else path)  # noqa: PTH118 - it may hold a pattern
    pattern = f"{place}/*" if os.path.isdir(place) else place  # noqa: PTH112 - no error for odd names
    matching = (Path(file) for file in sorted(iglob(pattern)))  # noqa: PTH207 - the user's pattern, from anywhere
    return [file for file in matching if file.is_file() and not file.name.startswith((".", "_"))]


def rows_of_file(file: Path, form: str, options: Mapping[str, str]) -> int | None:
    """Return the rows of a file, of a large text file by its first part; None: only Spark can read it."""
    if form in {"parquet", "orc"}:
        return _rows_in_footer(file, form)
    if form not in {"json", "csv", "text"} or options.get("multiline") == "true" or file.suffix in {".gz", ".bz2"}:
        return None
    with file.open("rb") as opened:
        part = opened.read(SAMPLED_BYTES)
    whole = file.stat().st_size
    lines = part.count(b"\n") + (len(part) == whole and bool(part) and not part.endswith(b"\n"))
    header = form == "csv" and options.get("header") == "true"
    return max(0, round(lines * whole / max(1, len(part))) - header)


def _rows_in_footer(file: Path, form: str) -> int | None:
    import pyarrow as pa  # noqa: PLC0415 - loads only where such files are read
    from pyarrow import orc, parquet  # noqa: PLC0415

    try:
        if form == "parquet":
            return int(parquet.read_metadata(file).num_rows)
        return int(orc.ORCFile(file).nrows)
    except (pa.ArrowInvalid, OSError):
        return None
