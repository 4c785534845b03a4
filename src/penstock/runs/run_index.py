"""The runs of this user: one folder in which every run has an entry, its own folder or the name of one elsewhere."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import stamp
from penstock.base.errors import BadInputError
from penstock.base.files import private_folder, read_text, write_text
from penstock.runs.folder import RunFolder, is_url

if TYPE_CHECKING:
    from penstock.runs.states import RunState

_LOG = logging.getLogger(__name__)

ELSEWHERE = ".elsewhere"
"""The ending of an entry that holds the path of a folder elsewhere."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of this user as its folder describes it, whichever process conducts it."""

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


def list_runs() -> list[ListedRun]:
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
        run = _listed(folder)
        if run is not None:
            runs.append(run)
    return sorted(runs, key=lambda run: str(run.details.get("started", "")))


def _elsewhere(entry: Path) -> Path | None:
    """The folder that an entry names; None if there is no run in it, or if the entry cannot be read."""
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
    raise BadInputError(f"no run '{name}': expected its folder, or a name that `penstock runs list` shows{shown}")


def run_folder(run: str | Path) -> RunFolder:
    """The folder of a run by its path, its URI, or the name that `runs list` shows."""
    if is_url(str(run)):
        return RunFolder(str(run))
    return RunFolder(run if Path(run).is_dir() else find_run(run))


def _listed(place: Path) -> ListedRun | None:
    """None: no run is there, or its description cannot be read."""
    folder = RunFolder(place)
    try:
        known, (state, details) = folder.description, folder.state()
    except BadInputError:
        return None
    slots = {} if known.config.slots is None else {"slots": known.config.slots}
    started = known.started or stamp(known.began or (place / "run.json").stat().st_mtime)
    return ListedRun(known.run, place, known.pipeline, known.engine, state, {"started": started, **slots, **details})


def _plain(name: str) -> str:
    """A part of a file's name, of at most 80 characters and 160 bytes: some scripts have four bytes for a letter."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)[:80]
    return plain.encode()[:160].decode("utf-8", errors="ignore")
