"""A hook of the user's that may forbid a change: `module:attribute`, called with the verdict as plain values in a
process of its own. It answers nothing (let it be) or a reason. While it is being asked nothing is decided; code that
fails forbids nothing, and that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control import user_code

if TYPE_CHECKING:
    from penstock.control.elasticity.verdict import SizeVerdict

FRESH_SECONDS = 10.0
"""An answer to an earlier question says nothing of this one."""


class StillAskedError(Exception):
    """The answer is not there yet: the decision is made again with the next look."""


class Veto:
    """The hook of one pipeline, for one decision."""

    def __init__(self, code: str, pipeline: str) -> None:
        self.code = code
        self._pipeline = pipeline
        self.failed: str | None = None
        """Why it could not be asked."""

    def __call__(self, verdict: SizeVerdict) -> str | None:
        """Why this may not be; None: it may."""
        asked = user_code.USER_CODE
        key = (self.code, self._pipeline, verdict.kind, verdict.units)
        answer = asked.answer(key, FRESH_SECONDS)
        if answer is None:
            plain = {"units": verdict.units, "why": verdict.why, "expected": dict(verdict.expected)}
            asked.ask(key, self.code, {"kind": str(verdict.kind), **plain})
            raise StillAskedError
        asked.forget(key)
        self.failed = answer.error
        return None if answer.error is not None else answer.value


def veto_of(code: str, pipeline: str) -> Veto | None:
    """None where none is named."""
    return Veto(code, pipeline) if code else None
