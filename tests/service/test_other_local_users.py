"""Another user of the same machine: reads nothing of a controller, is answered nothing, and has no file followed."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from other_user import NOBODY, as_another_user, needs_root, readable_below, remember_entries
from penstock.base.errors import BadInputError
from penstock.base.files import private_folder
from penstock.service.local import (
    RUNNING,
    ServiceSettings,
    UpController,
    read_running,
    start_controller,
    stop_controller,
)

PAGES = ("/", "/v1/pipelines", "/v1/nodes", "/v1/decisions", "/v1/watch", "/metrics", "/openapi.json", "/docs")


@pytest.fixture(scope="module")
def public() -> Iterator[Path]:
    """A folder everybody can look into, and a user who forbids nothing."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    folder.chmod(0o755)
    before = os.umask(0)
    yield folder
    os.umask(before)
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=["new", "there before"])
def state(public: Path, request: pytest.FixtureRequest) -> Path:
    folder = public / str(request.param)
    if request.param != "new":
        folder.mkdir(mode=0o755)
    return folder


@pytest.fixture(scope="module")
def controller(state: Path) -> Iterator[UpController]:
    yield start_controller(ServiceSettings(), state)
    stop_controller(state)


@needs_root
def test_nothing_of_a_controller_can_be_read(controller: UpController, state: Path) -> None:
    assert remember_entries(state) > 5
    open_to_all = {str(state)} if state.name == "there before" else set()
    assert set(as_another_user(lambda: readable_below(state))) <= open_to_all  # type: ignore[call-overload]


@needs_root
def test_tokens_stand_on_no_command_line_and_in_no_environment_that_others_see(
    controller: UpController, state: Path
) -> None:
    running = read_running(state / "controller")
    assert running is not None
    words = " ".join(psutil.Process(running.pid).cmdline())
    assert controller.token_file.read_text().strip() not in words
    assert as_another_user(lambda: environ(running.pid)) == ""


def environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return ""


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - our own controller
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


@needs_root
def test_nothing_is_answered_without_a_token(controller: UpController) -> None:
    assert status(f"{controller.url}/health") == 200  # what that needs is loaded: others may not read our Python
    answers = as_another_user(lambda: [status(controller.url + page) for page in PAGES])
    assert isinstance(answers, list)
    assert set(answers) <= {401, 403, 404}


@needs_root
def test_it_listens_on_loopback_and_nowhere_in_the_file_system(controller: UpController, state: Path) -> None:
    running = read_running(state / "controller")
    assert running is not None
    connections = psutil.Process(running.pid).net_connections("all")
    listening = [made.laddr for made in connections if made.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening] == ["127.0.0.1"]
    assert not [made for made in connections if made.family is socket.AF_UNIX and made.laddr]
    assert urlsplit(controller.url).port == listening[0].port


@needs_root
def test_a_folder_that_another_user_made_is_refused_and_their_links_are_not_followed(public: Path) -> None:
    precious, planted = public / "precious", public / "planted"
    precious.write_text("mine")
    (planted / "controller").mkdir(parents=True)
    (planted / "controller" / RUNNING).symlink_to(precious)
    (planted / "controller" / "token").symlink_to(precious)
    for path in (planted, planted / "controller"):
        os.chown(path, NOBODY, NOBODY)
    for folder in (planted, planted / "controller"):
        with pytest.raises(BadInputError, match="belongs to another user; name a folder of your own"):
            private_folder(folder)
    with pytest.raises(BadInputError, match="belongs to another user"):
        start_controller(ServiceSettings(), planted)
    assert precious.read_text() == "mine"
