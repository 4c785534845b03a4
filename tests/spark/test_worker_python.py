"""Which Python workers run: this one on this machine, the user's on others."""

from __future__ import annotations

import os
import sys

import pytest

from penstock.spark.session.embedded import (
    DRIVER_HOST,
    HERE,
    PYTHON_SETTING,
    PYTHON_VARIABLE,
    _workers_run,
    python_of_workers,
)

THERE = {DRIVER_HOST: "10.0.0.5"}


@pytest.mark.parametrize(
    ("master", "settings", "named", "python"),
    [
        ("local[2,8]", {}, "/opt/python", sys.executable),
        ("spark://127.0.0.1:7077", {DRIVER_HOST: HERE}, "/opt/python", sys.executable),
        ("spark://10.0.0.1:7077", THERE, "/opt/python", "/opt/python"),
        ("yarn", {}, "./env/bin/python", "./env/bin/python"),
        ("yarn", {PYTHON_SETTING: "/usr/python"}, "/opt/python", "/usr/python"),
        ("spark://10.0.0.1:7077", THERE, None, sys.executable),
    ],
)
def test_the_user_says_what_workers_elsewhere_run(
    master: str, settings: dict[str, str], named: str | None, python: str
) -> None:
    assert python_of_workers(master, settings, named) == python


def test_the_variable_stays_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, "/opt/python")
    with _workers_run(sys.executable):
        assert os.environ[PYTHON_VARIABLE] == sys.executable
    assert os.environ[PYTHON_VARIABLE] == "/opt/python"
    monkeypatch.delenv(PYTHON_VARIABLE)
    with _workers_run(sys.executable):
        assert os.environ[PYTHON_VARIABLE] == sys.executable
    assert PYTHON_VARIABLE not in os.environ
