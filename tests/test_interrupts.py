"""Ctrl-C while a run is waited for: once drains it, twice ends it at once. No Spark, no signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import RunFailedError
from penstock.engines.fused.foreground import await_with_interrupts
from penstock.runs.handle import RunHandle


class Run:
    """Goes on until it is asked to stop; whoever waits for it is interrupted."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.asked: list[str] = []
        self.waited_for = 0

    def stop(self) -> None:
        self.asked.append("stop")

    def await_end(self, timeout: float | None) -> Any:
        if not self.asked:
            raise KeyboardInterrupt
        self.waited_for += 1
        if self.fails:
            raise RunFailedError("its source had not been read yet")
        return "report"


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_is_interrupted_twice_is_stopped_and_waited_for(*, fails: bool) -> None:
    run = Run(fails=fails)
    handle = RunHandle(Path("runs/x"), run, lambda: None, lambda report: report, lambda *_: handle)
    with pytest.raises(KeyboardInterrupt):
        await_with_interrupts(handle)
    assert (run.asked, run.waited_for) == (["stop"], 1)
