"""Giving up on a thread: it cannot be ended from outside, only told to end itself when it next runs Python code."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


class AbandonedError(BaseException):
    """Raised in a thread that was given up on, because another has gone on with its work. No user's code catches it."""


def interrupt(thread: threading.Thread) -> None:
    """Ends a thread that is in Python code: a loop without end would keep a core busy. One that waits in C stays until
    that returns."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(AbandonedError))
