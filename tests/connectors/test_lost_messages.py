"""Messages that retention took before a fused run read them: counted once, however often their batch is planned."""

from __future__ import annotations

from pathlib import Path

from penstock.engines.fused.sources.topic_notices import LostPiece, lost_messages, note_lost, note_lost_in_task


def test_a_batch_that_is_planned_again_is_counted_once(tmp_path: Path) -> None:
    assert lost_messages(tmp_path).counts == {}
    first = LostPiece("source 'a'", "in", 0, 10, 5)
    note_lost(tmp_path, [first, LostPiece("source 'a'", "in", 1, 0, 2)])
    assert lost_messages(tmp_path).counts == {"in/0": 5, "in/1": 2}
    # its process died; meanwhile retention took two more of the same batch
    note_lost(tmp_path, [LostPiece("source 'a'", "in", 0, 10, 7)])
    assert lost_messages(tmp_path).counts == {"in/0": 7, "in/1": 2}
    # a later batch, and another source on the same topic
    note_lost(tmp_path, [LostPiece("source 'a'", "in", 0, 40, 1), LostPiece("source 'b'", "in", 0, 10, 3)])
    assert lost_messages(tmp_path).counts == {"in/0": 11, "in/1": 2}


def test_what_a_task_missed_is_counted_and_only_once(tmp_path: Path) -> None:
    # 0 to 10 were gone when the batch was planned, 10 to 15 when a task came to read them
    note_lost(tmp_path, [LostPiece("source 'a'", "in", 0, 0, 10)])
    for _ in range(2):  # the task was tried twice
        note_lost_in_task(tmp_path, LostPiece("source 'a'", "in", 0, 10, 5))
    note_lost_in_task(tmp_path, LostPiece("source 'b'", "in", 0, 10, 5))
    assert lost_messages(tmp_path).counts == {"in/0": 20}
    # the batch is planned again, from where it began
    note_lost(tmp_path, [LostPiece("source 'a'", "in", 0, 0, 15)])
    assert lost_messages(tmp_path).counts == {"in/0": 20}
