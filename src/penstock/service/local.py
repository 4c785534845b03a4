"""A controller on this machine: started in a process of its own, found again by its folder, ended."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import ClusterError
from penstock.base.files import Amount, Count, Name, Positive, Spec, private_folder, read_value, write_text
from penstock.base.process_identity import ProcessIdentity
from penstock.base.processes import end, find, start
from penstock.base.state_folder import locked, state_folder
from penstock.control.executors.driver_processes import end_drivers
from penstock.control.provisioning import IDLE_SECONDS
from penstock.planning.registry import DEFAULT_SHARER

if TYPE_CHECKING:
    from pathlib import Path


# Settings of a controller process, and the private folder with the files by which it is found.


SETTINGS, RUNNING, LOG = "controller.json", "running.json", "controller.log"
STORE = "store.db"
TOKEN, READ_TOKEN, ATTACH_TOKEN = "token", "read-token", "attach-token"
TOKENS = (TOKEN, READ_TOKEN, ATTACH_TOKEN)
DRIVERS = "pipelines"
"""The folder with one folder for every pipeline: its checkpoint, its log."""


class ServiceSettings(Spec):
    host: Name = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    """0: any that is free."""
    store: str = ""
    """Empty: a SQLite file in the folder."""
    take_over: bool = False
    """Take the store from a controller of another folder, or from one that lives."""
    policy: str = DEFAULT_SHARER
    simulated: bool = True
    nodes: Count = 1
    slots: Count = 1
    unit_slots: Count = 1
    speed: Positive = 1.0
    answer_to: tuple[Name, ...] = ()
    """Names others reach it by, beside the host and this machine's own."""
    price: Amount | None = None
    """Price of a node for an hour."""
    provider: str = ""
    """Source of nodes: nothing (this machine, or simulated ones), or NAME:ARGUMENT of a provider."""
    budget: Count | None = None
    """Nodes there are at most; with it they come and go by themselves."""
    hourly_budget: Amount | None = None
    """Max cost of all nodes in an hour."""
    idle_seconds: Positive = IDLE_SECONDS
    cluster_file: str = ""
    """Simulated: the nodes are those of this file."""
    cluster_folder: str = ""
    """Folder of the Spark cluster, if there is one."""
    master: str = ""


class RunningService(ProcessIdentity):
    """The process of a controller that answers."""

    url: str
    master: str | None = None
    nodes: tuple[Name, ...] = ()


def controller_folder(state: Path) -> Path:
    return private_folder(state / "controller")


def own_store_url(folder: Path) -> str:
    """URL of the store that a controller has if it was given none."""
    return f"sqlite:///{folder / STORE}"


def read_running(folder: Path) -> RunningService | None:
    path = folder / RUNNING
    return read_value(RunningService, path) if path.exists() else None


def write_spec(path: Path, value: Spec) -> None:
    write_text(path, value.model_dump_json(indent=1) + "\n")


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
            raise ClusterError(f"a controller runs already at {known.url}; end it with `penstock controller down`")
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
        raise ClusterError(
            "no controller runs here; start one with `penstock controller up`, or name its url and token"
        )
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
