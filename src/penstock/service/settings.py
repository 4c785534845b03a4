"""What a controller process is started with, and the files it is found by afterwards: one folder, its owner's alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from penstock.control.providers.provisioning import IDLE_SECONDS
from penstock.files import Amount, Count, Name, Positive, Spec, private_folder, read_value, write_text
from penstock.process_identity import ProcessIdentity
from penstock.sharing.registry import DEFAULT_SHARER

if TYPE_CHECKING:
    from pathlib import Path

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
    """Source of nodes: nothing (this machine, or simulated ones) or a file of commands."""
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
