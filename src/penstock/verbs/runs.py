"""`penstock.runs()`: the runs of this user, and how they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobs.runs import list_runs

if TYPE_CHECKING:
    from penstock.jobs.runs import Run


def runs() -> list[Run]:
    """Runs that live, were lost with their process, failed, or ended in a folder of their own, the newest last."""
    return list_runs()
