"""A controller on this machine: started in a process of its own, found again by its folder, ended."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch, pause
from penstock.control.executors.processes import end_drivers
from penstock.errors import ClusterError
from penstock.files import write_text
from penstock.service.settings import (
    ATTACH_TOKEN,
    DRIVERS,
    LOG,
    READ_TOKEN,
    RUNNING,
    SETTINGS,
    TOKEN,
    TOKENS,
    RunningService,
    ServiceSettings,
    controller_folder,
    read_running,
    write_spec,
)
from penstock.spark.standalone.processes import end, find, start
from penstock.spark.standalone.state import locked, state_folder

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.process_identity import ProcessIdentity

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class UpController:
    """Address of a controller, and the files with the tokens that open it."""

    url: str
    token_file: Path
    read_token_file: Path
    attach_token_file: Path
    master: str | None
    nodes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "token_file": str(self.token_file),
            "read_token_file": str(self.read_token_file),
            "attach_token_file": str(self.attach_token_file),
            "master": self.master,
            "nodes": list(self.nodes),
        }


def start_controller(settings: ServiceSettings, state: str | Path | None = None) -> UpController:
    """Comes back when the controller answers."""
    base = state_folder(state)
    with locked(base):
        folder = controller_folder(base)
        known = read_running(folder)
        if known is not None and find(known) is not None:
            raise ClusterError(f"a controller runs already at {known.url}; end it with `penstock down`")
        (folder / RUNNING).unlink(missing_ok=True)
        for name in TOKENS:
            write_text(folder / name, secrets.token_urlsafe(32) + "\n")
        write_spec(folder / SETTINGS, settings)
        log = folder / LOG
        log.unlink(missing_ok=True)
        # -P: nothing that lies in the current folder is imported instead of a library
        command = [sys.executable, "-P", "-m", "penstock.service.server", str(folder)]
        daemon = start(command, {**os.environ, "PENSTOCK_STATE": str(base)}, log)
        return _shown(folder, _answering(folder, daemon, log))


def _answering(folder: Path, daemon: ProcessIdentity, log: Path) -> RunningService:
    watch = Stopwatch()
    while watch.seconds() < PATIENCE_SECONDS:
        if (running := read_running(folder)) is not None:
            return running
        if find(daemon) is None:
            lines = log.read_text("utf-8", errors="replace").strip().splitlines() if log.exists() else []
            raise ClusterError(f"the controller did not start: {lines[-1] if lines else 'it said nothing'}")
        pause(0.05)
    process = find(daemon)
    if process is not None:
        end([process])
    raise ClusterError(f"the controller did not answer within {PATIENCE_SECONDS:g} s; see {log}")


def find_controller(state: str | Path | None = None) -> UpController:
    """The one that `start_controller` started."""
    folder = controller_folder(state_folder(state))
    known = read_running(folder)
    if known is None:
        raise ClusterError("no controller runs here; start one with `penstock up`, or name its url and token")
    return _shown(folder, known)


def stop_controller(state: str | Path | None = None) -> str | None:
    """Stop the controller and return its address; None if none ran. Its store stays."""
    base = state_folder(state)
    with locked(base):
        folder = controller_folder(base)
        known = read_running(folder)
        if known is None:
            return None
        process = find(known)
        if process is not None:
            end([process])
        (folder / RUNNING).unlink(missing_ok=True)
        end_drivers(folder / DRIVERS)
        return known.url


def _shown(folder: Path, running: RunningService) -> UpController:
    tokens = (folder / TOKEN, folder / READ_TOKEN, folder / ATTACH_TOKEN)
    return UpController(running.url, *tokens, running.master, running.nodes)
