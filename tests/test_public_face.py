"""What Python users meet: the verbs of the shell with the same defaults, results of one kind."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.base import former_names
from penstock.base.former_names import FormerNameWarning
from penstock.cli.commands import cluster_plans, models, plan, plans, run, runs, simulate

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
    shell, python = (set(inspect.signature(verb).parameters) for verb in (runs.resume, penstock.resume))
    # a pipeline, a session and a listener are objects of Python
    assert python - shell == {"folder", "given", "session", "patience", "listener"}


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        (plans.capacity, "capacity"),
        (runs.drain, "drain"),
        (cluster_plans.place, "place"),
        (plan.plan, "plan"),
        (models.profile, "profile"),
        (runs.resume, "resume"),
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
def test_a_former_name_works_and_warns_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_names, "_reported", set())
    with pytest.warns(FormerNameWarning, match=rf"^penstock\.{name} is now penstock"):
        assert getattr(penstock, name) is not None
    assert getattr(penstock, name) is not None  # a second warning would be an error
    assert name not in dir(penstock)


def test_every_name_that_0_1_exported_can_be_imported() -> None:
    names = (Path(__file__).parent / "formats_0_1" / "exported.txt").read_text("utf-8").split()
    assert len(names) > 100
    assert [name for name in names if name not in dir(penstock) and name not in penstock.FORMER_NAMES] == ["runs"]


def test_runs_is_a_package_that_can_still_be_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_names, "_reported", set())
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    with pytest.warns(FormerNameWarning, match=r"^penstock\.runs\(\) is now penstock\.list_runs\(\)$"):
        assert penstock.runs() == []  # type: ignore[operator] # not among the exported names any more


def test_few_names_are_exported() -> None:
    assert len(dir(penstock)) < 90
    assert {"types", "testing", "plugins"} <= set(dir(penstock))
