"""Runs: their options, states, folders, the handle `Run` and the contract of engines.

The package shares its name with the function `penstock.runs()`, so it can be called: Python sets the attribute `runs`
of `penstock` to this module as soon as it is imported.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runs.run_index import ListedRun


class _CallableModule(ModuleType):
    def __call__(self) -> list[ListedRun]:
        """List the runs of this user, as `penstock.runs()` does."""
        from penstock.runs.run_index import list_runs  # noqa: PLC0415 - options are read without it

        return list_runs()


sys.modules[__name__].__class__ = _CallableModule
