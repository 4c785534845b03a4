"""The one node P-Deployer's packing has open: what is on it, and how much every further thread is worth there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.placement.slots import TOLERANCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.placement.packing_tasks import Tasks

SAME = 1e-12
"""Priorities that differ by less are equal: they are sums of floats."""


class OpenNode:
    """Savings are kept up to date with every thread put on the node: only its neighbours' change.

    Everything is normalised by the node's capacity. `s = C_max - C` plus what the threads already here save (Eq. 5),
    `p = a_r s - a_c (C - r_cpu)^2 - a_m (M - r_memory)^2` (Eq. 6), r being what is left before placing and a_c, a_m
    the mean demand of a thread of the pipeline. A thread fits if the node's exact total after placing, savings
    included, does.
    """

    def __init__(
        self,
        tasks: Tasks,
        capacity: NDArray[np.float64],
        free: NDArray[np.float64],
        saving_weight: float,
    ) -> None:
        self._tasks = tasks
        self._capacity = np.where(capacity > 0, capacity, 1.0)
        self._free = free / self._capacity
        self._demand = tasks.demand / self._capacity
        count = len(tasks.left)
        cpu, memory = tasks.cpu_axis, tasks.memory_axis
        self.cpu_capacity = float(self._capacity[cpu]) if cpu is not None else 1.0
        """Points of CPU that are 1.0 here."""
        self._cpu = self._demand[:, cpu] if cpu is not None else np.zeros(count)
        self._memory = self._demand[:, memory] if memory is not None else np.zeros(count)
        self._cpu_left = float(self._free[cpu]) if cpu is not None else 0.0
        self._memory_left = float(self._free[memory]) if memory is not None else 0.0
        self._others = [axis for axis in range(len(capacity)) if axis not in (cpu, memory)]
        self._others_left = self._free[self._others]
        self._own = np.zeros(count)
        self._both = np.zeros(count)
        self._saving_weight = saving_weight
        shares = tasks.threads / max(int(tasks.threads.sum()), 1)
        self._cpu_weight = float(self._cpu @ shares)
        self._memory_weight = float(self._memory @ shares)

    def priorities(self) -> NDArray[np.float64]:
        """p of one more thread of every operator, whether it fits or not."""
        short = self._cpu - self._own - self._cpu_left
        spare = self._memory - self._memory_left
        priority: NDArray[np.float64] = self._saving_weight * self._both
        priority -= self._cpu_weight * (short * short)
        priority -= self._memory_weight * (spare * spare)
        return priority

    def fits(self) -> NDArray[np.bool_]:
        """Whether one more thread of every operator fits within the node's totals."""
        fits: NDArray[np.bool_] = self._cpu - self._both <= self._cpu_left + TOLERANCE
        fits &= self._memory <= self._memory_left + TOLERANCE
        if self._others:
            fits &= (self._demand[:, self._others] <= self._others_left + TOLERANCE).all(axis=1)
        return fits

    def best(self, largest: float) -> int | None:
        """The operator whose thread comes next: the first of those with the largest priority; None where none of what
        is left fits. `largest` is the most memory one slot of the node still takes, as a share of the node's."""
        fits = self.fits()
        fits &= self._tasks.left > 0
        fits &= self._memory <= largest + TOLERANCE
        priority = np.where(fits, self.priorities(), -np.inf)
        top = priority.max(initial=-np.inf)
        return None if top == -np.inf else int((priority >= top - SAME).argmax())

    def put(self, operator: int) -> None:
        """One thread more."""
        self._cpu_left -= float(self._cpu[operator] - self._both[operator])
        self._memory_left -= float(self._memory[operator])
        if self._others:
            self._others_left = self._others_left - self._demand[operator, self._others]
        neighbours, own, both = self._tasks.neighbours[operator]
        if len(neighbours):
            self._own[neighbours] += own / self.cpu_capacity
            self._both[neighbours] += both / self.cpu_capacity

    def saving(self, operator: int) -> float:
        """s of one more thread, as a share of the node's CPU."""
        return float(self._both[operator])

    def free(self) -> NDArray[np.float64]:
        """What is left, in units of the resources."""
        left = self._free.copy()
        for axis, amount in (
            (self._tasks.cpu_axis, self._cpu_left),
            (self._tasks.memory_axis, self._memory_left),
        ):
            if axis is not None:
                left[axis] = amount
        left[self._others] = self._others_left
        return left * self._capacity

    def reason(self, operator: int) -> str:
        """Why a thread of this operator comes next."""
        return (
            f"largest priority, {self.priorities()[operator]:.3g}, of what fits the open node: saves "
            f"{self._both[operator]:.3g} of its cpu, of which {self._cpu_left:.3g} is left, and takes "
            f"{self._memory[operator]:.3g} of the {self._memory_left:.3g} memory left"
        )

    def cpu_of(self, operator: int) -> float:
        """CPU of one more thread beside what is here, as a share of the node's."""
        return float(self._cpu[operator] - self._own[operator])
