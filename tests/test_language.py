"""The language check finds the private idiom and leaves plain sentences alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
from check_language import find_matches, read_comments, read_docstrings, read_paragraphs


@pytest.mark.parametrize(
    "text",
    [
        "What lies behind the watermark.",
        "Who waits is served first.",
        "Of a pipeline that was rehearsed as a whole.",
        "None where no model says anything.",
        "Nobody else is given one of those.",
        "The driver is told to stop.",
        "So long all that was needed must have been less.",
        "Failed because it could not let go of its files and what it used.",
    ],
)
def test_a_sentence_in_the_idiom_is_found(text: str) -> None:
    assert find_matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "Add a report. Ignore values that are not finite.",
        "Seconds to wait for a worker.",
        "Return the pending offsets, or None if no batch is open.",
        "Max hung threads per operator: the larger of this and twice its thread count.",
        "Who may read this file?",
        "Reject option keys that have no effect.",
    ],
)
def test_a_plain_sentence_passes(text: str) -> None:
    assert not find_matches(text)


def test_docstrings_attribute_texts_comments_and_paragraphs_are_read() -> None:
    source = '"""One."""\nx = 1\n"""Two."""\n# three\ny = 2  # noqa: S101\ndef f():\n    """Four."""\n'
    assert sorted(text for _, text in read_docstrings(source)) == ["Four.", "One.", "Two."]
    assert [text for _, text in read_comments(source)] == ["three"]
    page = "# Title\n\nOne line.\n- a point\n\n```\nWhat code\n```\n    indented code\n| a table |\n"
    assert [text for _, text in read_paragraphs(page)] == ["One line.", "a point"]
