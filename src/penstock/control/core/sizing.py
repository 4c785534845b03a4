"""How many units a pipeline needs for a rate, and what it does on so many: asked by the core, answered by models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import Submission


class Sizing(Protocol):
    """Pure: the same submission and rate give the same answer. None where no model says anything."""

    def units_for(self, submission: Submission, rate: float) -> int | None: ...

    def rate_on(self, submission: Submission, units: int) -> float | None: ...

    def usage(self, submission: Submission, rate: float) -> tuple[float, float] | None:
        """Cores and MB its executors need for so many tuples/s."""

    def gains_of(self, submission: Submission) -> Mapping[str, float]:
        """Tuples that come to each operator for one of a source's."""

    def batch_cost(self, submission: Submission) -> float:
        """Seconds a batch takes whatever it holds, as profiled."""


class NoSizing:
    """Where nothing is known of any pipeline."""

    def units_for(self, submission: Submission, rate: float) -> int | None:
        return None

    def rate_on(self, submission: Submission, units: int) -> float | None:
        return None

    def usage(self, submission: Submission, rate: float) -> tuple[float, float] | None:
        return None

    def gains_of(self, submission: Submission) -> Mapping[str, float]:
        return {}

    def batch_cost(self, submission: Submission) -> float:
        return 0.0
