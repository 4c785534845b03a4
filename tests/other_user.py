"""What another user of this machine sees: a child process that belongs to somebody else."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")


def as_another_user(look: Callable[[], object]) -> object:
    """What `look` returns in a child process that belongs to somebody else; it must survive JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, json.dumps(look()).encode())
            os._exit(0)
        except BaseException:  # the child must not go on as a second pytest
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


def readable_below(folder: Path) -> list[str]:
    """Files and folders that can be opened, by whatever path: names may be guessed."""
    known = [str(folder), *ENTRIES[str(folder)]]
    return [path for path in known if os.access(path, os.R_OK) or os.access(path, os.X_OK)]


ENTRIES: dict[str, list[str]] = {}


def remember_entries(folder: Path) -> int:
    ENTRIES[str(folder)] = [str(path) for path in folder.rglob("*")]
    return len(ENTRIES[str(folder)])
