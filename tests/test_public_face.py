"""What Python users meet: the verbs of the shell with the same defaults, results of one kind."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.cli.commands import cluster_plans, models, plan, plans, run, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

SAME = {
    "batch_overhead": "batch_overhead_ms",
    "budget": "budget_seconds",
    "executor_memory": "executor_memory_mb",
    "pause": "pause_seconds",
    "queue": "queue_limit",
    "replay": "replay_seconds",
    "trial": "trial_seconds",
}
"""Options whose argument says its unit."""


def defaults(function: object) -> dict[str, object]:
    found = inspect.signature(function).parameters  # type: ignore[arg-type] # every one of them is a function
    return {name: one.default for name, one in found.items() if one.default is not inspect.Parameter.empty}


def test_resume_takes_in_the_shell_what_it_takes_in_python() -> None:
    shell, python = (set(inspect.signature(verb).parameters) for verb in (run.resume, penstock.resume))
    # a pipeline, a session and a listener are objects of Python
    assert python - shell == {"given", "session", "patience", "listener"}


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        (plans.capacity, "capacity"),
        (run.drain, "drain"),
        (cluster_plans.place, "place"),
        (plan.plan, "plan"),
        (models.profile, "profile"),
        (run.resume, "resume"),
        (plans.rewrite, "rewrite"),
        (run.run, "run"),
        (run.run, "run_placed"),
        (plans.segments, "segments"),
        (cluster_plans.share, "share"),
        (simulate.simulate, "simulate"),
    ],
    ids=lambda case: case if isinstance(case, str) else case.__name__,
)
def test_defaults_of_the_shell_are_those_of_python(command: Callable[..., object], verb: str) -> None:
    shell = defaults(command)
    python = defaults(getattr(penstock, verb))
    shared = {name: SAME.get(name, name) for name in shell if SAME.get(name, name) in python}
    assert shared
    for option, argument in shared.items():
        # an option that was not given is None; the verb has a default of its own
        if shell[option] is not None:
            assert shell[option] == python[argument], option


@pytest.mark.parametrize("name", sorted(penstock.FORMER_NAMES))
def test_a_former_name_works_and_warns(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"penstock\.{name} is now "):
        assert getattr(penstock, name) is not None
    assert name not in dir(penstock)
