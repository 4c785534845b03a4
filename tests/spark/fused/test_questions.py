"""What is asked of a fused run through its folder, while whoever asks is still writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.files import atomic_path
from penstock.runs.run_folder import FusedRunFolder

if TYPE_CHECKING:
    from pathlib import Path


def test_a_question_that_is_still_being_written_is_left_alone(tmp_path: Path) -> None:
    folder = FusedRunFolder(tmp_path / "run")
    folder.make()
    with atomic_path(folder.path / "requests" / "mine.json") as temporary:
        assert list(folder.questions()) == []
        assert temporary.exists()
        temporary.write_text('{"ask": "rescale", "slots": 2}')
    assert list(folder.questions()) == [("mine", {"ask": "rescale", "slots": 2})]
    assert list(folder.questions()) == []
