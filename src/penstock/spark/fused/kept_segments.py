"""Segments that a Python worker keeps from task to task: workers are reused, and so are threads and connections."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.runtime.dead_letters import INTERRUPTIONS, error_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.runtime.segment import Segment

MOST_RUNS = 3
"""As many runs may take turns in one worker before one has to open again what it had opened."""

_LOG = logging.getLogger(__name__)


class KeptSegments:
    """By run and region. Not every worker hears that a run has ended: of more than `most_runs` those that were used
    last stay."""

    def __init__(self, most_runs: int = MOST_RUNS) -> None:
        self._most_runs = most_runs
        self._runs: dict[str, dict[int, Segment]] = {}
        """The last is the one that was used last."""

    def get(self, run: str, region: int, build: Callable[[], Segment]) -> Segment:
        regions = self._runs[run] = self._runs.pop(run, {})
        while len(self._runs) > self._most_runs:
            self.close_run(next(iter(self._runs)))
        if region not in regions:
            regions[region] = build()
        return regions[region]

    def drop(self, run: str, region: int) -> None:
        """Closes one; raises what that raises."""
        segment = self._runs.get(run, {}).pop(region, None)
        if segment is not None:
            segment.close()

    def close(self) -> None:
        for run in list(self._runs):
            self.close_run(run)

    def close_run(self, run: str) -> list[str]:
        """What one run cannot close is no reason for another to fail: it is logged, and returned in one line each."""
        failures = []
        for segment in self._runs.pop(run, {}).values():
            try:
                segment.close()
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                failures.append(error_line(error))
                _LOG.warning("run %s: what its code opened cannot be closed: %s", run, failures[-1])
        return failures
