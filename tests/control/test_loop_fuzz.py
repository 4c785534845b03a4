"""Requests nobody would make on purpose, and a canary that is decided upon all the same. `PENSTOCK_LONG=REQUESTS` makes
it that many; `loop_fuzz.py` runs alone, too."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from loop_fuzz import LoopFuzz

from penstock.control.user_code import UserCode

if TYPE_CHECKING:
    from pathlib import Path

REQUESTS = int(os.environ.get("PENSTOCK_LONG", "160"))


@pytest.mark.parametrize(("seed", "unit_slots"), [(1, 1), (2, 2)])
def test_the_canary_is_decided_upon(tmp_path: Path, seed: int, unit_slots: int) -> None:
    code = UserCode(tmp_path, seconds=1.0)
    fuzz = LoopFuzz(seed, tmp_path, unit_slots, code)
    try:
        fuzz.run(REQUESTS)
    finally:
        code.close()
    # neither was everything refused, nor everything taken
    assert min(fuzz.counts["done"], fuzz.counts["refused"]) > REQUESTS / 5
    # what models, loads and options may say is dealt with; only reports that are no readings at all are left out
    assert {subject.partition(" of ")[0] for subject in fuzz.quarantined} <= {"a report", "trigger"}
