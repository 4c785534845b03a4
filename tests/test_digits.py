from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock
from penstock.base.text import is_whole


@pytest.mark.parametrize("text", ["0", "007", "9" * 18])
def test_a_whole_number_can_be_read(text: str) -> None:
    assert is_whole(text)
    assert int(text) < 2**63


@pytest.mark.parametrize("text", ["", "²", "٣", "\uff16", "-1", "+1", " 1", "1_0", "1.0", "9" * 19, "9" * 5000])
def test_other_digits_and_too_many_are_none(text: str) -> None:
    assert not is_whole(text)


def test_nobody_asks_isdigit_without_isascii() -> None:
    """`"²".isdigit()` is true, and `int("²")` raises."""
    asks = re.compile(r"\.is(digit|decimal|numeric)\(\)")
    root = Path(penstock.__file__).parent
    lines = {f"{path}:{line.strip()}" for path in root.rglob("*.py") for line in path.read_text("utf-8").splitlines()}
    assert {line for line in lines if asks.search(line) and "isascii()" not in line} == set()
