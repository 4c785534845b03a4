"""What is told of a run: the audit over many batches and processes, and where tasks ran. No Spark is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.cluster.topology import Slot
from penstock.engines.fused import accounting as audits
from penstock.engines.fused.accounting import AuditFolder, BatchObserver, load_progress
from penstock.engines.fused.frames import share_of
from penstock.runtime.account import Account, IdBitmaps
from penstock.runtime.batch import Marks
from penstock.spark.region_function import Accounts, BatchRecords, TaskRecord


class DiedError(Exception):
    """As if the process had been killed here."""


def delivered(first: int, last: int) -> Account:
    ids = IdBitmaps()
    ids.delivered_at("out", Marks(np.arange(first, last, dtype=np.int64)))
    return Account(ids=ids)


def test_the_audit_sees_what_is_missing_and_what_came_twice(tmp_path: Path) -> None:
    audit = AuditFolder(tmp_path)
    audit.write(0, delivered(0, 10))
    audit.write(1, delivered(12, 20))  # 10 and 11 are missing
    audit.write(2, delivered(15, 25))  # 15 to 19 come again
    audit.write(3, delivered(25, 99))  # never committed
    found = audit.audit(last_committed=2, reached=30)  # the source says 30: 25 to 29 are missing too
    assert (found.emitted, found.lost, found.duplicated) == (30, 7, 5)


def test_a_batch_that_is_run_again_replaces_its_first_attempt(tmp_path: Path) -> None:
    audit = AuditFolder(tmp_path)
    audit.write(0, delivered(0, 5))
    AuditFolder(tmp_path).write(0, delivered(0, 10))  # by another process
    found = audit.audit(0, 10)
    assert (found.emitted, found.lost, found.duplicated) == (10, 0, 0)


@pytest.mark.parametrize("removed", range(5))
def test_folding_that_is_broken_off_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    """Batches 0 to 3 are folded when batch 4 is written; the process dies when so many of their files are removed."""
    monkeypatch.setattr(audits, "FOLDED_EVERY", 4)
    unlink, left = Path.unlink, iter(range(removed))

    def dying(path: Path, missing_ok: bool = False) -> None:
        if path.name.isdigit() and next(left, None) is None:
            raise DiedError
        unlink(path, missing_ok)

    audit = AuditFolder(tmp_path)
    for batch in range(4):
        audit.write(batch, delivered(10 * batch, 10 * batch + 10))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", dying)
        if removed < 4:
            with pytest.raises(DiedError):
                audit.write(4, delivered(40, 50))
        else:
            audit.write(4, delivered(40, 50))
    for batch in range(5, 10):
        AuditFolder(tmp_path).write(batch, delivered(10 * batch, 10 * batch + 10))
    found = AuditFolder(tmp_path).audit(9, 100)
    assert (found.emitted, found.lost, found.duplicated) == (100, 0, 0)


@pytest.mark.parametrize("batch", [4, 8])
def test_a_batch_that_folds_others_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Its process died before Spark committed it: those before it were folded by then."""
    monkeypatch.setattr(audits, "FOLDED_EVERY", 4)
    for number in range(batch + 1):
        AuditFolder(tmp_path).write(number, delivered(10 * number, 10 * number + 10))
    for _ in range(2):
        AuditFolder(tmp_path).write(batch, delivered(10 * batch, 10 * batch + 10))
    found = AuditFolder(tmp_path).audit(batch, 10 * batch + 10)
    assert (found.emitted, found.lost, found.duplicated) == (10 * batch + 10, 0, 0)


def records_of(account: Account | None) -> BatchRecords:
    tasks = () if account is None else (TaskRecord(0, 0, 0, 0, 0.0, 1.0, 0.5, "h", "7", 8, "", account.to_bytes()),)
    return BatchRecords(tasks)


@pytest.mark.parametrize(
    ("left", "said", "again", "lost"),
    [
        (delivered(0, 10), None, delivered(0, 3), 0),  # left out, and audited by the attempt before
        (None, None, delivered(0, 10), 0),  # left out, and not audited: it is worked out once more
        (delivered(0, 3), delivered(0, 10), None, 0),  # run again: what is said last counts
        (None, None, None, 10),  # for the first time, and nobody has it
    ],
)
def test_what_is_said_of_a_batch_that_was_begun_before(
    tmp_path: Path, left: Account | None, said: Account | None, again: Account | None, lost: int
) -> None:
    audit = AuditFolder(tmp_path)
    if left is not None:
        audit.write(0, left)
    audit.account_for(0, records_of(said), None if again is None else lambda: records_of(again))
    assert audit.audit(0, 10).lost == lost


def task(partition: int, host: str, executor: str, slot: str = "") -> TaskRecord:
    return TaskRecord(0, 0, partition, 1, 0.0, 1.0, 0.5, host, executor, 70, slot, Account().to_bytes())


@pytest.mark.parametrize(
    ("local_slots", "tasks", "expected"),
    [
        (2, [task(0, "h", "7"), task(1, "h", "7")], [Slot("local", 0), Slot("local", 1)]),
        # a topic has as many partitions as it has
        (2, [task(n, "h", "7") for n in range(5)], [Slot("local", n) for n in (0, 1, 0, 1, 0)]),
        # a cluster that counts slots says which one an executor holds
        (None, [task(0, "h", "7", "n2/1"), task(1, "h", "8", "rack/a/0")], [Slot("n2", 1), Slot("rack/a", 0)]),
        # another one does not: executors are numbered on their host as they are heard of
        (
            None,
            [task(0, "h1", "7"), task(1, "h2", "9"), task(2, "h1", "8"), task(3, "h1", "7")],
            [Slot("h1", 0), Slot("h2", 0), Slot("h1", 1), Slot("h1", 0)],
        ),
    ],
)
def test_slots_are_named_by_where_tasks_ran(
    local_slots: int | None, tasks: list[TaskRecord], expected: list[Slot]
) -> None:
    pipeline = penstock.pipeline("p").source("s").sink("out").build()
    observer = BatchObserver(pipeline, {}, None, local_slots=local_slots)
    assert [seen.where for seen in observer._slot_observations(tuple(tasks))] == expected


def test_weights_of_one_sender_lie_end_to_end() -> None:
    p = penstock.pipeline("p").source("s")
    p.sink("a", reads="s", weight=0.25).sink("b", reads="s", weight=0.75).sink("all", reads="s")
    pipeline = p.build()
    found = {stream.receiver: share_of(pipeline, stream) for stream in pipeline.streams}
    assert found == {"a": (0.0, 0.25), "b": (0.25, 1.0), "all": (0.0, 1.0)}


def entered(region: int, partition: int, **rows: int) -> TaskRecord:
    account = Account().to_bytes()
    return TaskRecord(0, region, partition, 1, 0.0, 1.0, 1.0, "h", "e", 70, "", account, tuple(rows.items()))


@pytest.mark.parametrize(
    ("tasks", "reads", "taken"),
    [
        # two sources into one region, in two tasks
        ([entered(0, 0, x=3, y=4), entered(0, 1, x=5, y=0)], 1, 12),
        # two regions read both: each row counts once
        ([entered(0, 0, x=3, y=4), entered(1, 0, x=3, y=4)], 2, 7),
        # of y only a part, or nothing, comes into code: Spark counts, as often as it reads
        ([entered(0, 0, x=3)], 2, 50),
        ([], 1, 100),
    ],
)
def test_tuples_are_counted_where_they_come_in(tasks: list[TaskRecord], reads: float, taken: int) -> None:
    pipeline = penstock.pipeline("p").source("x", format="rate").source("y", format="rate")
    observer = BatchObserver(
        pipeline.then("a", reads=["x", "y"], logic=lambda row: row).sink("out").build(),
        {},
        None,
        local_slots=2,
        reads=reads,
    )
    progress: Any = SimpleNamespace(numInputRows=100)
    assert observer._rows_of_sources(progress, BatchRecords(tuple(tasks))) == taken


@pytest.mark.parametrize(
    ("offsets", "which"),
    [
        (['{"tuples": 5}'], 0),
        (['{"logOffset": 0}', "17", '{"tuples": {"0": 3}}', '{"tuples": 5}'], 3),
        (['{"logOffset": 0}', None], None),
    ],
)
def test_the_load_is_told_from_other_sources(offsets: list[str | None], which: int | None) -> None:
    progress: Any = SimpleNamespace(sources=[SimpleNamespace(endOffset=offset) for offset in offsets])
    assert load_progress(progress) is (None if which is None else progress.sources[which])


def test_a_task_of_several_partitions_counts_whole_and_its_last_attempt_alone() -> None:
    context: Any = SimpleNamespace(accumulator=lambda _, param: param)
    accounts = Accounts(context)

    def tell(batch: int, partition: int, attempt: int, rows: int) -> None:
        record = entered(0, partition, x=rows)._replace(batch=batch, attempt=attempt)
        accounts.accumulator.addInPlace([], [record])

    tell(1, 0, 7, 3)
    tell(1, 0, 7, 4)  # coalesced: another partition of what the region made
    tell(1, 1, 8, 5)
    tell(2, 0, 9, 6)
    assert accounts.take(1).entered() == {"x": 12}
    tell(2, 0, 11, 7)  # the stage is run again
    tell(2, 0, 11, 8)
    assert accounts.take(2).entered() == {"x": 15}
    assert accounts.workers == {("h", 70)}
    for began, worker in ((1000.0, 71), (1085.0, 72)):
        accounts.accumulator.addInPlace([], [entered(0, 0, x=1)._replace(batch=3, began=began, worker=worker)])
    accounts.take(3)
    # the first has been idle for too long to be there
    assert accounts.workers == {("h", 71), ("h", 72)}
