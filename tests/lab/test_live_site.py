"""What the live use cases send, leave out and wait for; the controller is a list of rows here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import RunError
from penstock_lab.experiments import priority_live as live
from penstock_lab.experiments import priority_perf as perf
from penstock_lab.experiments.priority_live import PARTITIONS, USE_1, USE_2, WARM_UP, WARM_UP_TUPLES, LiveSite


class _Client:
    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows)

    def list(self) -> list[dict[str, Any]]:
        return self.rows


def row(name: str, state: str, held: int, assigned: int | None = None) -> dict[str, Any]:
    return {"name": name, "state": state, "held": held, "assigned": held if assigned is None else assigned}


def site(folder: Path, *rows: dict[str, Any]) -> LiveSite:
    return LiveSite(folder, USE_2, _Client(*rows))


def test_shares_are_settled_when_nobody_starts_or_drains(tmp_path: Path) -> None:
    assert site(tmp_path / "a", row("TP1", "active", 4), row("TP2", "waiting", 0)).settled() == {"TP1": 4, "TP2": 0}
    assert site(tmp_path / "b", row("TP1", "active", 4), row("TP2", "starting", 0)).settled() is None
    assert site(tmp_path / "c", row("TP1", "active", 3), row("TP2", "active", 1, 2)).settled() is None


def test_calm_is_what_stays_and_has_those_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CALM_SECONDS", 0.0)
    monkeypatch.setattr(live, "START_SECONDS", 0.1)
    place = site(tmp_path, row("TP1", "active", 4), row("TP2", "waiting", 0))
    assert place.await_calm(["TP1"]) == {"TP1": 4, "TP2": 0}
    with pytest.raises(RunError, match=r"did not come up within 0\.1 s"):
        place.await_calm(["TP1", "TP2"])


def test_tuples_of_the_warm_up_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WARM_UP_SECONDS", 0.05)
    monkeypatch.setattr(live, "END_SECONDS", 0.05)
    place = site(tmp_path)
    place.warm_up({"TP1": 0, "TP2": 0})  # who has no slot is not waited for
    sent = perf.arrivals(place.log, "feed1")
    assert len(sent) == PARTITIONS["feed1"] * WARM_UP_TUPLES
    assert {arrival.source for arrival in sent} == {WARM_UP}
    assert place.waiting("TP1") == len(sent)
    with pytest.raises(RunError, match=r"came through no pipeline.*'TP1': 120"):
        place.warm_up({"TP1": 3, "TP2": 0})
    place.feed({"feed1": ((0.05, 100.0),)}, "feed")
    assert [arrival.number for arrival in sorted(live._counted(place.log, "feed1"), key=lambda row: row.at)] == [
        *range(5)
    ]


@pytest.mark.parametrize("use", [USE_1, USE_2])
def test_minima_fit_and_what_is_desired_does_not(use: tuple[live.LiveWant, ...]) -> None:
    slots = live.SLOTS[1 if use is USE_1 else 2]
    assert sum(want.minimum for want in use) <= slots < sum(want.desired for want in use)
    # a producer for every slot of the pipeline that reads its topic with most
    for topic in {want.topic for want in use}:
        assert max(want.desired for want in use if want.topic == topic) == PARTITIONS[topic]


def test_java_compiles_in_one_stage_unless_the_user_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(live.JAVA_OPTIONS, raising=False)
    with live.quick_java():
        assert os.environ[live.JAVA_OPTIONS] == live.ONE_STAGE
    assert live.JAVA_OPTIONS not in os.environ
    monkeypatch.setenv(live.JAVA_OPTIONS, "-Xint")
    with live.quick_java():
        assert os.environ[live.JAVA_OPTIONS] == "-Xint"
    assert os.environ[live.JAVA_OPTIONS] == "-Xint"
