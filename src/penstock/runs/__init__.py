"""Runs: their configuration, states, folders and handle, for every engine.

Version 0.1 exported a function `penstock.runs()`. It is now `penstock.list_runs()`; calling the package still works.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self) -> Any:
        import penstock  # noqa: PLC0415 - the alias must not load the public functions
        from penstock.base.former_names import report_former_name  # noqa: PLC0415

        report_former_name("penstock.runs()", "penstock.list_runs()")
        return penstock.list_runs()


sys.modules[__name__].__class__ = _CallablePackage
