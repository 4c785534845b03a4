"""What `penstock profile` shows and keeps; the measuring itself is played."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from outcome import Penstock

from penstock.api import models as measuring
from penstock.modelling.library import models_document
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.profiling.profiler import progress_of

POINTS = (
    Point(threads=1, rate=50, cpu=0.25, memory=0.01, operator_cpu=0.2, engine_cpu=0.05),
    Point(threads=2, rate=99, cpu=0.45, memory=0.02, operator_cpu=0.4, engine_cpu=0.05),
)
MODEL = Model("pi", POINTS, MeasuredOn(others_cpu=0.4))


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[dict[str, Any]]]:
    """Stands in for measuring: two points, then the end or Ctrl-C."""

    def make(interrupt: bool) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def profile(pipeline: str, output: Path, **options: Any) -> list[Model]:
            asked.append({"pipeline": pipeline, **options})
            for spent, point in enumerate(POINTS):
                options["listener"].on_progress(progress_of("pi (1 of 1)", 0, 1, spent, 15))
                output.write_text(json.dumps(models_document([Model("pi", POINTS[: spent + 1])])))
                options["listener"].on_point("pi", point)
            if interrupt:
                raise KeyboardInterrupt
            return [MODEL]

        monkeypatch.setattr(measuring, "profile", profile)
        return asked

    return make


Play = Callable[[bool], list[dict[str, Any]]]


def test_a_table_at_the_end_and_nothing_meanwhile(penstock: Penstock, play: Play, tmp_path: Path) -> None:
    asked = play(False)
    file = tmp_path / "m.json"
    outcome = penstock("profile", "linear", "-o", file, "--quick", "--operator", "P", "--repeats", 3)
    assert (outcome.code, outcome.err) == (0, "")
    assert "45.0 %" in outcome.out
    assert f"wrote {file}: pi" in outcome.out
    assert "warning: others used up to 40 %" in outcome.out
    assert (asked[0]["quick"], asked[0]["operators"], asked[0]["repeats"]) == (True, ["P"], 3)
    assert asked[0]["budget_seconds"] is None
    assert not asked[0]["fresh"]


def test_for_programs(penstock: Penstock, play: Play, tmp_path: Path) -> None:
    play(False)
    document = penstock("profile", "linear", "-o", tmp_path / "m.json", "--json").document
    assert [point["threads"] for point in document["models"]["pi"]["points"]] == [1, 2]


def test_a_bar_and_every_point_on_a_terminal(
    penstock: Penstock, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    play(False)
    err = penstock("profile", "linear", "-o", tmp_path / "m.json").err
    assert "pi: 1 threads, 50 tuples/s, cpu 25.0 %" in err
    assert "pi (1 of 1)" in err
    assert "at most 14 s left" in err


def test_ctrl_c_says_what_was_kept(penstock: Penstock, play: Play, tmp_path: Path) -> None:
    play(True)
    file = tmp_path / "m.json"
    outcome = penstock("profile", "linear", "-o", file)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", f"interrupted; 2 points kept in {file}\n")
