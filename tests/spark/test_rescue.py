"""Where bundles go when what they sit on is gone: decided without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load
from penstock.spark import placed_run
from penstock.spark.bundles import make_bundles
from penstock.spark.placed_run import PATIENCE_SECONDS, PlacedRun, PlacedSetup
from penstock.spark.query import RunFailedError


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(placed_run, "now", found)
    return found


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Nodes the Master calls alive."""
    nodes = {"n1", "n2"}
    page = SimpleNamespace(worker=lambda node: SimpleNamespace(state="ALIVE") if node in nodes else None)
    monkeypatch.setattr(placed_run, "fetch_page", lambda _: page)
    return nodes


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> PlacedRun:
    pipeline = penstock.pipeline("p").source("source").sink("sink").build()
    threads = {Slot("n1", 0): {"source": 1}, Slot("n2", 0): {"sink": 1}}
    bundles = make_bundles(pipeline, {}, threads, Load.constant(1.0), lambda _, count: float(count))
    setup = PlacedSetup(tmp_path, Load.constant(1.0), {}, lambda _: 1, master_web="http://x", nodes={"n1": 2, "n2": 1})
    made = PlacedRun(None, setup, bundles)  # type: ignore[arg-type] # nothing is started

    def move(name: str, slot: Slot) -> None:
        made.queries.bundles[name] = replace(made.queries.bundles[name], slot=slot)

    monkeypatch.setattr(made.queries, "move", move)
    return made


def where(run: PlacedRun) -> dict[Any, Slot]:
    return {bundle.operators[0]: bundle.slot for bundle in run.queries.bundles.values()}


def names(run: PlacedRun) -> list[str]:
    return list(run.queries.bundles)


def test_what_is_only_slow_stays(run: PlacedRun, alive: set[str]) -> None:
    run._rescue(names(run))
    assert where(run) == {"source": Slot("n1", 0), "sink": Slot("n2", 0)}


def test_what_sat_on_a_dead_node_goes_to_a_slot_that_hosts_nothing(run: PlacedRun, alive: set[str]) -> None:
    alive.discard("n2")
    run._rescue(names(run))
    assert where(run) == {"source": Slot("n1", 0), "sink": Slot("n1", 1)}
    assert "node 'n2' died" in run.notes[0]


def test_a_refuge_that_never_starts_is_given_up(run: PlacedRun, alive: set[str], clock: Clock) -> None:
    alive.discard("n2")
    run._rescue(names(run))
    clock.seconds += PATIENCE_SECONDS / 2
    run._rescue(names(run))
    assert where(run)["sink"] == Slot("n1", 1)
    clock.seconds += PATIENCE_SECONDS
    run._rescue(names(run))
    assert where(run)["sink"] == Slot("n1", 0)
    assert "slot n1/1 did not start" in run.notes[1]


def test_without_a_slot_left_the_run_says_so(run: PlacedRun, alive: set[str]) -> None:
    alive.clear()
    with pytest.raises(RunFailedError, match="no other slot is left; nothing is lost"):
        run._rescue(names(run))


def test_a_folder_that_cannot_be_written_is_waited_for_and_said(
    run: PlacedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run._mind_trouble("RUN: No space left on device")
    run._mind_trouble("RUN: No space left on device")
    run._mind_trouble(None)
    assert [note.partition(";")[0].partition(",")[0] for note in run.notes] == [
        "RUN: No space left on device",
        "the folder can be written again",
    ]
    run._mind_trouble("RUN: No space left on device")
    monkeypatch.setattr("penstock.clock.Stopwatch.seconds", lambda _: PATIENCE_SECONDS + 1)
    with pytest.raises(RunFailedError, match="nothing is lost: make room, and resume the run"):
        run._mind_trouble("RUN: No space left on device")
