"""One table of states and one function that moves between them."""

from __future__ import annotations

import pytest

from penstock.base.errors import BadInputError, ImpossibleMoveError
from penstock.runs.states import (
    LIVING,
    MOVES,
    OVER,
    RunRequest,
    RunState,
    StateHistory,
    check_permitted,
    move,
)

STARTING, RUNNING, DRAINING, PAUSED, STOPPED, FAILED, LOST = RunState


@pytest.mark.parametrize("before", RunState)
@pytest.mark.parametrize("after", RunState)
def test_only_moves_of_the_table_are_made(before: RunState, after: RunState) -> None:
    history = StateHistory([(before, 0.0)])
    if after in MOVES[before]:
        move(history, after)
        assert history.state is after
        return
    with pytest.raises(ImpossibleMoveError, match=f"a run that is {before} cannot become {after}"):
        move(history, after)
    assert history.state is before


def test_an_impossible_move_tells_the_history() -> None:
    history = StateHistory()
    for state in (RUNNING, DRAINING, PAUSED, STOPPED):
        move(history, state)
    told = r"stopped cannot become paused; history: starting at .*, running at .*, draining .*, paused .*, stopped at"
    with pytest.raises(ImpossibleMoveError, match=told):
        move(history, PAUSED)


@pytest.mark.parametrize(
    ("request_", "permitted"),
    [
        (RunRequest.STOP, {STARTING, RUNNING, DRAINING, PAUSED}),
        (RunRequest.KILL, {STARTING, RUNNING, DRAINING, PAUSED}),
        (RunRequest.PAUSE, {STARTING, RUNNING}),
        (RunRequest.RESCALE, {STARTING, RUNNING}),
        (RunRequest.RESUME, {PAUSED, STOPPED, FAILED, LOST}),
    ],
)
def test_what_each_state_permits(request_: RunRequest, permitted: set[RunState]) -> None:
    for state in RunState:
        if state in permitted:
            check_permitted(request_, state, "r")
            continue
        with pytest.raises(BadInputError, match=rf"^run 'r' is {state}: cannot {request_} it; .+") as refused:
            check_permitted(request_, state, "r")
        assert "\n" not in str(refused.value)


def test_every_state_is_living_or_over() -> None:
    assert set(RunState) == LIVING | OVER
    assert not LIVING & OVER
    # every state that is over can be resumed, and nothing else comes of it
    assert {state: MOVES[state] for state in OVER} == dict.fromkeys(OVER, frozenset({STARTING}))
