"""Ctrl-C while a run is waited for: once stops it, twice kills it. No Spark, no signals."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import RunFailedError
from penstock.runs.foreground import await_with_interrupts


class Run:
    """Goes on until it is killed; whoever waits for it is interrupted."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.asked: list[str] = []

    def await_termination(self, timeout: float) -> bool:
        raise KeyboardInterrupt

    def kill(self) -> None:
        self.asked.append("kill")
        if self.fails:
            raise RunFailedError("its source had not been read yet")


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_is_interrupted_twice_is_killed(*, fails: bool) -> None:
    run: Any = Run(fails=fails)
    with pytest.raises(KeyboardInterrupt):
        await_with_interrupts(run)
    assert run.asked == ["kill"]
