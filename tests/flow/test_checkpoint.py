"""Commits are created once, leases say who conducts, markers are aligned, key groups are handed over."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import BadInputError
from penstock.base.lease import LEASE_SECONDS, RunLease, holder
from penstock.connectors.checkpoint import KEPT, Checkpoint, FolderCheckpoint, NotWrittenError, ReplacedError
from penstock.connectors.commit import Commit, Output, next_commit, state_of
from penstock.engines.placed.flow.bundle import BundleFlow, SayBroken, SayLinked, Stage, Standing
from penstock.engines.placed.flow.events import Staged
from penstock.engines.placed.flow.layout import KEY_GROUPS, Bundle, Channel, Layout, group_of, ranges
from penstock.engines.placed.flow.states import ImpossibleError


def commit(epoch: int, conductor: int = 1) -> Commit:
    return Commit(run="r", conductor=conductor, generation=1, epoch=epoch, plan="p")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    made = FolderCheckpoint(tmp_path)
    made.create()
    return made


def test_the_last_commit_counts(checkpoint: Checkpoint) -> None:
    assert checkpoint.last() is None
    for epoch in (1, 2, 10):
        checkpoint.write(commit(epoch))
    assert checkpoint.last() == commit(10)


def test_an_epoch_is_committed_once(checkpoint: Checkpoint) -> None:
    checkpoint.write(commit(1))
    checkpoint.write(commit(1))  # the same process tries again, not knowing that it succeeded
    with pytest.raises(ReplacedError, match="epoch 1 was committed by another process"):
        checkpoint.write(commit(1, conductor=2))
    assert checkpoint.last() == commit(1)


def test_whoever_takes_over_fences_the_one_before(checkpoint: Checkpoint) -> None:
    checkpoint.write(commit(4))
    taken = checkpoint.take_over(commit(4), "other plan")
    assert (taken.epoch, taken.conductor, taken.plan) == (5, 2, "other plan")
    with pytest.raises(ReplacedError):
        checkpoint.write(commit(5))
    with pytest.raises(ReplacedError):  # two take over at once: one of them
        checkpoint.take_over(commit(4), "a third")


def test_no_half_commit_is_left_and_old_ones_go(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for epoch in range(1, 8):
        checkpoint.write(commit(epoch))
        checkpoint.forget_old(epoch)
    left = sorted(path.name for path in (tmp_path / "commits").iterdir())
    assert left == [f"{epoch:012d}.json" for epoch in range(8 - KEPT, 8)]
    assert checkpoint.last() == commit(7)


def test_a_disk_that_takes_nothing_is_said_in_one_line(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_source: object, _target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(NotWrittenError, match="No space left on device"):
        checkpoint.write(commit(1))
    assert checkpoint.last() is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ('{"run": "r"', "not valid JSON"),
        ("{}", "run: Field required"),
        ('{"version": 99}', "another version of Penstock"),
    ],
)
def test_a_commit_that_is_none_is_named(checkpoint: Checkpoint, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "commits" / "000000000003.json").write_text(text)
    with pytest.raises(BadInputError, match=says):
        checkpoint.last()


def test_a_lease_that_cannot_be_read_is_nobodys(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "lease.json").write_text("")
    assert checkpoint.lease is None
    lease = RunLease(host="h", process=7, started=1.0, number=2, renewed=5.0)
    checkpoint.sign(lease)
    assert checkpoint.lease == lease


@pytest.mark.parametrize(
    ("host", "age", "alive", "held"),
    [
        ("here", 1.0, True, True),
        ("here", 1.0, False, False),  # it died: no need to wait
        ("here", LEASE_SECONDS + 1, True, False),  # it was stopped: the checkpoint fences it
        ("there", 1.0, False, True),  # nothing is known of processes elsewhere
        ("there", LEASE_SECONDS + 1, False, False),
    ],
)
def test_who_holds_a_run(host: str, age: float, alive: bool, held: bool) -> None:
    lease = RunLease(host=host, process=7, started=1.0, number=2, renewed=1000.0 - age)
    assert (holder(lease, 1000.0, "here", alive=alive) is not None) == held
    assert holder(None, 1000.0, "here", alive=True) is None
    given_back = lease.model_copy(update={"renewed": 0.0})
    assert holder(given_back, 1.0, "here", alive=True) is None


def test_offsets_and_states_replace_those_before_group_by_group() -> None:
    before = commit(3).model_copy(update={"offsets": {"a": 1, "b": 5}, "states": {"o": {"0": "x", "1": "y"}}})
    output = Output(sink="k", staged="s", final="f", rows=2)
    found = next_commit(
        before, 2, 7, "p", [Staged("o@n", 7, 4, {"a": 9}, {"o": {"1": "z"}}), Staged("k@n", 7, 4, outputs=(output,))]
    )
    assert (found.epoch, found.conductor, found.generation) == (4, 2, 7)
    assert found.offsets == {"a": 9, "b": 5}
    assert found.states == {"o": {"0": "x", "1": "z"}}
    assert found.outputs == (output,)
    assert state_of(found, "o", 1, 5) == {1: "z"}


def test_an_offset_of_what_is_not_there_any_more_leaves_the_commit() -> None:
    before = commit(3).model_copy(update={"offsets": {"s/t/0": 4, "s/t/1": 5}})
    after = next_commit(before, 2, 7, "p", [Staged("s@n", 7, 4, {"s/t/0": 6, "s/t/1": None})])
    assert after.offsets == {"s/t/0": 6}


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_every_group_has_one_owner_whatever_the_threads(threads: list[int]) -> None:
    found = ranges(threads)
    assert found[0][0] == 0
    assert found[-1][1] == KEY_GROUPS
    assert all(end == first for (_, end), (first, _) in pairwise(found))
    # within a group of its share: G * t / T, rounded down at both edges
    for (first, end), own in zip(found, threads, strict=True):
        assert abs((end - first) - KEY_GROUPS * own / sum(threads)) < 1
    assert set(group_of(np.arange(1000, dtype=np.uint64))) == set(range(KEY_GROUPS))


A, B, OUT = Channel(0, "a", "x"), Channel(1, "b", "x"), Channel(2, "x", "y")


def linked(*, has_sources: bool = False, held: bool = False) -> BundleFlow:
    flow = BundleFlow()
    flow.form(1, 0, frozenset({A, B}), frozenset({OUT}), has_sources=has_sources, held=held)
    for channel in (A, B):
        assert flow.link_up(channel, 1) == []
    assert flow.link_up(OUT, 1) == [SayLinked(1)]
    return flow


def test_an_input_whose_marker_came_waits_for_the_others() -> None:
    flow = linked()
    assert flow.marker(A, 1, 1) == []
    assert not flow.may_read(A)
    assert flow.may_read(B)
    assert flow.marker(B, 1, 1) == [Stage(1)]
    flow.staged(1, 1)
    assert flow.may_read(A)


def test_the_conductors_word_is_a_marker_for_sources() -> None:
    flow = linked(has_sources=True)
    assert flow.may_emit
    assert flow.open_epoch(1, 1, hold=True) == []
    assert not flow.may_emit, "what is emitted now belongs behind the marker"
    flow.marker(A, 1, 1)
    assert flow.marker(B, 1, 1) == [Stage(1)]
    flow.staged(1, 1)
    assert not flow.may_emit
    flow.go(1)
    assert flow.may_emit


def test_a_lost_link_is_said_once_and_older_generations_mean_nothing() -> None:
    flow = linked()
    assert flow.link_down(1, "reset") == [SayBroken(1, "reset")]
    assert flow.link_down(1, "reset") == []
    assert flow.standing is Standing.WAITING
    flow.form(2, 5, frozenset({A}), frozenset(), has_sources=False, held=False)
    assert flow.link_up(A, 1) == []
    assert flow.marker(A, 1, 1) == []
    assert flow.link_up(A, 2) == [SayLinked(2)]
    assert flow.marker(A, 2, 6) == [Stage(6)]


def test_markers_out_of_turn_raise() -> None:
    flow = linked()
    with pytest.raises(ImpossibleError, match="marker 2"):
        flow.marker(A, 1, 2)
    flow.marker(A, 1, 1)
    with pytest.raises(ImpossibleError, match="marker 1"):
        flow.marker(A, 1, 1)
    with pytest.raises(ImpossibleError, match="formed after"):
        flow.form(1, 0, frozenset({A}), frozenset(), has_sources=False, held=False)
    with pytest.raises(ImpossibleError, match="never gets a marker"):
        flow.form(2, 0, frozenset(), frozenset({OUT}), has_sources=False, held=False)


def test_a_layout_that_does_not_hold_together_is_refused() -> None:
    from penstock.cluster.topology import Slot

    bundle = Bundle("x", Slot("n", 0), ("x",), (1,))
    with pytest.raises(ValueError, match="one name"):
        Layout("p", (bundle, bundle), ())
    with pytest.raises(ValueError, match="not both there"):
        Layout("p", (bundle,), (OUT,))
