"""The one module that reads the clock; everything else is given the time, or a stopwatch."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Seconds since it was made."""

    _started: float = field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        return time.perf_counter() - self._started
