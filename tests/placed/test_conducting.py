"""What is asked of a placed run from other threads is answered, whatever becomes of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import RunError
from penstock.engines.placed.run_control import RunControl
from penstock.runs.states import RunState


def test_who_waits_for_a_change_is_told_when_the_run_ends_in_the_middle_of_it() -> None:
    control = RunControl()
    done, begun = control.ask("pause"), control.ask("change", Path("plan.json"))
    first, _ = control.take()
    first.answered.set_result(0.5)
    queued = control.ask("rescale", slots=2)
    control.end(RunState.FAILED)
    assert done.result(timeout=0) == 0.5
    for answer in (begun, queued, control.ask("stop")):
        with pytest.raises(RunError, match="the run has ended"):
            answer.result(timeout=0)
