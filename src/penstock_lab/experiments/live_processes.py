"""Commands as processes of their own: a process has one Spark, and an experiment knows no commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from penstock import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMPLAINT = 500
"""Characters of what a process said last."""


def started(words: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """`penstock WORDS...`, with what `environment` has beside this process's own."""
    return subprocess.Popen(  # noqa: S603 - this program itself
        [sys.executable, "-P", "-m", "penstock", *words],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def completed(process: subprocess.Popen[str], what: str, seconds: float) -> tuple[str, str]:
    """Wait for a process and return its output and its complaints. Raise if it takes longer than `seconds`."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise RunError(f"{what}: not done after {seconds:g} s") from None


def answer(process: subprocess.Popen[str], what: str, seconds: float) -> dict[str, Any]:
    """Return the JSON that a process prints. Raise with its last words if it prints none, or takes longer."""
    output, complaints = completed(process, what, seconds)
    try:
        return dict(json.loads(output))
    except ValueError:
        raise RunError(f"{what}: {complaints.strip()[-COMPLAINT:] or 'no answer'}") from None
