"""The order in which R-Storm takes operators and their threads."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def breadth_first(operators: int, streams: Sequence[tuple[int, int]], sources: Sequence[int]) -> list[int]:
    """Operators (positions 0..operators-1) breadth first along outgoing streams (R-Storm, Algorithm 2).

    All sources are in the queue at the start; streams are followed in declared order; cycles are allowed.
    Operators that no source reaches become roots of their own, in declared order.
    """
    following: list[list[int]] = [[] for _ in range(operators)]
    for sender, receiver in streams:
        following[sender].append(receiver)
    order: list[int] = []
    seen = [False] * operators
    queue: deque[int] = deque()
    for roots in (sources, *((operator,) for operator in range(operators))):
        for root in roots:
            if not seen[root]:
                seen[root] = True
                queue.append(root)
        while queue:
            operator = queue.popleft()
            order.append(operator)
            for receiver in following[operator]:
                if not seen[receiver]:
                    seen[receiver] = True
                    queue.append(receiver)
    return order


def thread_order(order: Sequence[int], threads: Sequence[int]) -> list[int]:
    """The operator of every thread in turn: one thread of each operator of `order`, round after round, until
    all are taken (R-Storm, Algorithm 3). `threads` is indexed by operator."""
    taken: list[int] = []
    active = [operator for operator in order if threads[operator] > 0]
    done = 0
    while active:
        done += 1
        taken += active
        active = [operator for operator in active if threads[operator] > done]
    return taken
