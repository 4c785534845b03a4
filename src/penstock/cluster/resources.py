"""Named amounts of things a node offers and a thread demands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

CPU = "cpu"
"""Points of CPU; 100 points are one core."""

MEMORY = "memory_mb"
"""Megabytes of memory."""

MachineMemory = Annotated[float, Field(ge=0.001, allow_inf_nan=False, strict=True)]
"""Megabytes of a machine: enough to be an amount when it is divided among slots."""

CPU_POINTS_PER_SLOT = 100.0


@dataclass(frozen=True, slots=True)
class Dimension:
    """One axis of the resource space.

    A hard dimension may never be exceeded. A soft one may, and by how much is reported. `weight` scales the
    squared difference between what a node has left and what a thread demands, in units of the resource.
    """

    name: str
    hard: bool
    weight: float


DEFAULT_DIMENSIONS = (Dimension(CPU, hard=False, weight=1e-4), Dimension(MEMORY, hard=True, weight=1e-6))
"""R-Storm's view: CPU degrades gracefully, memory does not. Weights turn points into cores and MB into GB."""
