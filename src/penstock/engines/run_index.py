"""The runs of this user: one folder in which every run has an entry, its own folder or the name of one elsewhere."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import stamp
from penstock.base.errors import BadInputError
from penstock.base.files import parse_json, private_folder, read_text, write_text
from penstock.runs.config import FUSED
from penstock.runs.description import parse_description

if TYPE_CHECKING:
    from penstock.runs.run_folder import RunState

_LOG = logging.getLogger(__name__)

ELSEWHERE = ".elsewhere"
"""The ending of an entry that holds the path of a folder elsewhere."""


@dataclass(frozen=True, slots=True)
class Run:
    name: str
    folder: Path
    pipeline: str
    engine: str
    state: RunState
    details: dict[str, Any]

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "folder": str(self.folder),
            "pipeline": self.pipeline,
            "engine": self.engine,
            "state": str(self.state),
            **self.details,
        }


def runs_folder() -> Path:
    """That of PENSTOCK_RUNS, or one in the user's cache."""
    if configured := os.environ.get("PENSTOCK_RUNS"):
        return Path(configured).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return ((Path(cache) if cache else Path.home() / ".cache") / "penstock" / "runs").absolute()


def new_run_folder(pipeline: str) -> Path:
    return private_folder(runs_folder() / f"{_plain(pipeline)}-{stamp()}-{secrets.token_hex(2)}")


def is_unnamed(folder: Path) -> bool:
    """Whether a run's folder is among those of runs for which the user named none."""
    return folder.resolve().parent == runs_folder().resolve()


def note_elsewhere(folder: Path) -> None:
    """A run in a folder that the user named is found among the others too; one that is among them has its entry."""
    if is_unnamed(folder):
        return
    path = str(folder.resolve())
    write_text(
        private_folder(runs_folder()) / f"{_plain(folder.name)}-{sha256(path.encode()).hexdigest()[:8]}{ELSEWHERE}",
        path,
    )


def forget_run(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def list_runs() -> list[Run]:
    """Those whose folder is there and can be read, the newest last; entries of folders that are gone, or listed without
    one, are removed."""
    runs = []
    for entry in sorted(runs_folder().iterdir()) if runs_folder().is_dir() else ():
        folder = entry
        if entry.suffix == ELSEWHERE:
            elsewhere = _elsewhere(entry)
            if elsewhere is None or is_unnamed(elsewhere):
                entry.unlink(missing_ok=True)
                continue
            folder = elsewhere
        run = _run(folder)
        if run is not None:
            runs.append(run)
    return sorted(runs, key=lambda run: str(run.details.get("started", "")))


def _elsewhere(entry: Path) -> Path | None:
    """The folder an entry names; None where no run is there, or what the entry holds names none at all."""
    try:
        folder = Path(read_text(entry).strip())
        return folder if (folder / "run.json").exists() else None
    except (BadInputError, OSError, ValueError) as error:
        _LOG.warning("%s: names no folder: %s", entry, error)
        return None


def find_run(name: str | Path) -> Path:
    """The folder of a run, by its path or the name `runs` shows."""
    if (Path(name) / "run.json").exists():
        return Path(name)
    known = {run.name: run.folder for run in list_runs()}
    if str(name) in known:
        return known[str(name)]
    shown = f"; there are: {', '.join(known)}" if known else ""
    raise BadInputError(f"no run '{name}': expected its folder, or a name that `runs` shows{shown}")


def placed_or_found(run: str | Path) -> str | Path:
    """A URI, under which only placed runs keep what lasts, as it is; else the folder of a run, by path or name."""
    if "://" in str(run):
        return str(run)
    return Path(run) if Path(run).is_dir() else find_run(run)


def _run(folder: Path) -> Run | None:
    """None: no run is there, or what says so cannot be read."""
    try:
        return _fused_run(folder) if is_fused(folder) else _placed_run(folder)
    except BadInputError:
        return None


def is_fused(folder: Path) -> bool:
    """Whether a folder is that of a fused run."""
    file = folder / "run.json"
    if not file.exists():
        return False
    return parse_description(parse_json(read_text(file), str(file)), str(file)).engine == FUSED


def _fused_run(folder: Path) -> Run:
    from penstock.runs.run_folder import FusedRunFolder  # noqa: PLC0415 - needs no Spark, but stands beside it

    here = FusedRunFolder(folder)
    description = here.description()
    state, details = here.state()
    details = {"slots": description.slots, "started": description.started, **details}
    return Run(description.run, folder, description.pipeline, "fused", state, details)


def _placed_run(folder: Path) -> Run:
    """Of a placed run its lease says how it stands: held, given back, or left behind."""
    from penstock.engines.placed.run_folder import RunFolder  # noqa: PLC0415
    from penstock.runs.run_folder import RunState  # noqa: PLC0415 - needs no Spark, but stands beside it

    here = RunFolder(folder)
    description, lease, last = here.description, here.checkpoint.lease, here.checkpoint.last()
    if here.held_by is not None:
        state = RunState.RUNNING if description.began else RunState.STARTING
    else:
        state = RunState.ENDED if lease is not None and lease.renewed == 0 else RunState.LOST
    details: dict[str, Any] = {"started": stamp(description.began or (folder / "run.json").stat().st_mtime)}
    if last is not None:
        details |= {"epoch": last.epoch, "generation": last.generation}
        with suppress(BadInputError):  # a plan that cannot be read keeps nobody from seeing the run
            details["slots"] = len(here.plan()[0].placement)
    return Run(description.run, folder, description.pipeline, "placed", state, details)


def _plain(name: str) -> str:
    """A part of a file's name, of at most 80 characters and 160 bytes: some scripts have four bytes for a letter."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)[:80]
    return plain.encode()[:160].decode("utf-8", errors="ignore")
