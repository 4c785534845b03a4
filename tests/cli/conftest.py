"""Running the command in this process."""

from __future__ import annotations

import pytest
from outcome import Outcome, Penstock

from penstock.cli.main import run


@pytest.fixture
def penstock(capsys: pytest.CaptureFixture[str]) -> Penstock:
    def call(*words: object) -> Outcome:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
