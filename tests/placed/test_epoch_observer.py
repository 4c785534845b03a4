"""What is made of epochs whose sources are topics: tuples, and what waits."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load
from penstock.engines.placed.conductor import EpochDone, StagedPart
from penstock.engines.placed.monitoring import EpochObserver
from penstock.runtime.account import Account, OperatorCount


def observed(commit: dict[str, int], *epochs: tuple[int, dict[str, int], int]) -> EpochObserver:
    """Epochs as (offset of the load, what waits by partition, messages read); `commit` is what all of them left."""
    parts = [
        StagedPart("src@n1/0", Slot("n1", 0), Account({"src": OperatorCount(rows, rows)}), {}, lag=lag)
        for _, lag, rows in epochs
    ]
    dones = [EpochDone(at, float(at), epochs[at][0], (part,)) for at, part in enumerate(parts)]
    conductor = SimpleNamespace(
        run=SimpleNamespace(commit=SimpleNamespace(offsets=commit)),
        done=deque(dones),
        used=dict,
        watched={},
        began=0.0,
        limit=None,
    )
    observer = EpochObserver(conductor, Load.constant(1.0), ("src",))  # type: ignore[arg-type] # as much as it needs
    observer.look()
    return observer


def test_messages_are_counted_and_not_offsets() -> None:
    """The run begins at offset 10^9, and every other offset is the end of a transaction."""
    observer = observed({"src/t/0": 10**9 + 20}, (0, {"src/t/0": 4}, 5), (0, {"src/t/0": 2}, 3))
    assert [epoch.tuples for epoch in observer.epochs] == [5, 3]
    assert [epoch.backlog for epoch in observer.epochs] == [4, 2]


def test_tuples_of_a_load_are_counted_by_its_offset() -> None:
    observer = observed({"src": 9}, (5, {}, 7), (9, {}, 7))
    # it begins with what is committed: 9, which the first epochs here did not have yet
    assert [epoch.tuples for epoch in observer.epochs] == [0, 4]


def test_what_waited_in_a_partition_that_vanished_does_not_wait_any_more() -> None:
    observer = observed({"src/t/0": 20}, (0, {"src/t/0": 4, "src/t/1": 1000}, 5), (0, {}, 0))
    # a bundle that says nothing has not looked yet
    assert observer.lag == {"src/t/0": 4}
    assert observer.backlog == 4
