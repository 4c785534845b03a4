"""The one node P-Deployer's packing has open: what is on it, and how much every further thread is worth there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE, first_largest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.placement.packing.tasks import PackingTasks


class OpenNode:
    """Everything is normalised by the node's capacity. `s = C_max - C` plus what the threads already here save (Eq. 5),
    `p = a_r s - a_c (C - r_cpu)^2 - a_m (M - r_memory)^2` (Eq. 6), r being what is left before placing and a_c, a_m
    the mean demand of a thread of the pipeline. A thread fits if the node's exact total after placing, savings
    included, does.

    A thread put on the node changes r, which is one number, and the savings of its neighbours. So of
    `p = (a_r s - a_c C^2 - a_m M^2) + 2 a_c r_cpu C + 2 a_m r_memory M - what is the same for all` the bracket is kept,
    and brought up to date for the neighbours alone.
    """

    def __init__(
        self,
        tasks: PackingTasks,
        capacity: NDArray[np.float64],
        free: NDArray[np.float64],
        saving_weight: float,
    ) -> None:
        self._tasks = tasks
        self._capacity = np.where(capacity > 0, capacity, 1.0)
        self._left = free / self._capacity
        self._demand = tasks.demand / self._capacity
        cpu, memory = tasks.cpu_axis, tasks.memory_axis
        nothing = np.zeros(len(tasks.left))
        self.cpu_capacity = float(self._capacity[cpu]) if cpu is not None else 1.0
        """Points of CPU that are 1.0 here."""
        self._neighbours = tasks.neighbours_on(self.cpu_capacity)
        self._most = self._demand[:, cpu] if cpu is not None else nothing
        self._cpu = self._most.copy()
        """C of one more thread, beside what is here."""
        self._total = self._most.copy()
        """By how much the node's total grows with one more thread: C_max - s."""
        self._memory = self._demand[:, memory] if memory is not None else nothing
        self._cpu_left = float(self._left[cpu]) if cpu is not None else 0.0
        self._memory_left = float(self._left[memory]) if memory is not None else 0.0
        self._others = [axis for axis in range(len(capacity)) if axis not in (cpu, memory)]
        self._saving_weight = saving_weight
        shares = tasks.threads / max(int(tasks.threads.sum()), 1)
        self._cpu_weight = float(self._most @ shares)
        self._memory_weight = float(self._memory @ shares)
        self._kept = -self._cpu_weight * self._cpu**2 - self._memory_weight * self._memory**2
        self._never = tasks.left == 0
        """Operators of which no further thread can come here: none is left, or the node has too little of something
        that only gets less."""
        if self._others:
            self._never |= (self._demand[:, self._others] > self._left[self._others] + TOLERANCE).any(axis=1)
        self._largest_memory = float(self._memory[~self._never].max(initial=0.0))
        self._worth_scale = (saving_weight + 2 * self._cpu_weight) * float(self._most.max(initial=0.0))
        self._worth_scale += 2 * self._memory_weight * float(self._memory.max(initial=0.0))
        self._worth = np.empty(len(nothing))
        self._of_memory = np.empty(len(nothing))

    def priorities(self) -> NDArray[np.float64]:
        """p of one more thread of every operator, whether it fits or not."""
        saved = self._saving_weight * (self._most - self._total)
        cpu = self._cpu_weight * (self._cpu - self._cpu_left) ** 2
        memory = self._memory_weight * (self._memory - self._memory_left) ** 2
        priority: NDArray[np.float64] = saved - cpu - memory
        return priority

    def fits(self) -> NDArray[np.bool_]:
        """Whether one more thread of every operator fits within the node's totals."""
        fits: NDArray[np.bool_] = ~self._never & (self._total <= self._cpu_left + TOLERANCE)
        fits &= self._memory <= self._memory_left + TOLERANCE
        return fits

    def best(self, largest: float) -> int | None:
        """The operator whose thread comes next: the first of those with the largest priority; None where none of what
        is left fits. `largest` is the most memory one slot of the node still takes, as a share of the node's."""
        most_memory = min(self._memory_left, largest) + TOLERANCE
        if most_memory < self._largest_memory:
            self._never |= self._memory > most_memory
            self._largest_memory = float(self._memory[~self._never].max(initial=0.0))
        worth = np.multiply(self._cpu, 2 * self._cpu_weight * self._cpu_left, out=self._worth)
        worth += np.multiply(self._memory, 2 * self._memory_weight * self._memory_left, out=self._of_memory)
        worth += self._kept
        unfit = self._total > self._cpu_left + TOLERANCE
        unfit |= self._never
        worth[unfit] = -np.inf
        best = first_largest(worth, self._worth_scale) if len(worth) else 0
        return best if len(worth) and worth[best] > -np.inf else None

    def put(self, operator: int) -> None:
        """One thread more. The caller counts it off `tasks.left` first."""
        self._cpu_left -= float(self._total[operator])
        self._memory_left -= float(self._memory[operator])
        if not self._tasks.left[operator]:
            self._never[operator] = True
        if self._others:
            self._left[self._others] -= self._demand[operator, self._others]
            self._never |= (self._demand[:, self._others] > self._left[self._others] + TOLERANCE).any(axis=1)
        neighbourhood = self._neighbours[operator]
        if neighbourhood is not None:
            neighbours, own, both = neighbourhood
            before = self._cpu[neighbours]
            after = before - own
            self._cpu[neighbours] = after
            self._total[neighbours] -= both
            # C^2 falls by before^2 - after^2 = own (before + after)
            self._kept[neighbours] += self._saving_weight * both + self._cpu_weight * own * (before + after)

    def saving(self, operator: int) -> float:
        """s of one more thread, as a share of the node's CPU."""
        return float(self._most[operator] - self._total[operator])

    def cpu_of(self, operator: int) -> float:
        """CPU of one more thread beside what is here, as a share of the node's."""
        return float(self._cpu[operator])

    def free(self) -> NDArray[np.float64]:
        """What is left, in units of the resources."""
        left = self._left.copy()
        for axis, amount in (
            (self._tasks.cpu_axis, self._cpu_left),
            (self._tasks.memory_axis, self._memory_left),
        ):
            if axis is not None:
                left[axis] = amount
        return left * self._capacity

    def reason(self, operator: int) -> str:
        """Why a thread of this operator comes next."""
        return (
            f"largest priority, {self.priorities()[operator]:.3g}, of what fits the open node: saves "
            f"{self.saving(operator):.3g} of its cpu, of which {self._cpu_left:.3g} is left, and takes "
            f"{self._memory[operator]:.3g} of the {self._memory_left:.3g} memory left"
        )
