"""Fill bins (nodes, or slots) with a pipeline, block by block."""

from __future__ import annotations

from collections import deque
from operator import ge, sub
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.compact.graph import Talk, interleaved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LOOK_BACK = 6
"""Bins behind the current one in which a thread that no longer fits the current one is tried."""


def fill(
    talk: Talk,
    counts: Sequence[int],
    demand: NDArray[np.float64],
    room: NDArray[np.float64],
    together: Sequence[Sequence[int]],
) -> tuple[NDArray[np.float64], list[int]]:
    """Threads of each operator in each bin (bins x operators), and how many found no bin.

    `room` is what each bin offers, bins in the order in which they are to be opened; `demand` is what one
    thread of each operator takes. `together`
    are the blocks of operators to keep together, in order.
    """
    held = np.zeros((len(room), talk.size))
    left = room.copy()
    missing = [0] * talk.size
    opened = 0
    slack = TOLERANCE * room.max(axis=0)
    takes = demand.tolist()
    needs = (demand - slack).tolist()
    for block in together:
        whole = np.zeros(talk.size)
        whole[block] = [counts[operator] for operator in block]
        need = whole @ demand - slack
        reach = min(opened + 1, len(room))
        fits = np.flatnonzero((left[:reach] >= need).all(axis=1))
        if len(fits):
            pull = held[fits] @ (talk.pull @ whole)
            # The bin it talks to most; among equals the fullest open one.
            spare = (left[fits] / np.maximum(room[0], 1e-300)).sum(axis=1)
            bin_ = int(fits[np.lexsort((spare, -pull))[0]])
            held[bin_] += whole
            left[bin_] -= whole @ demand
            opened = max(opened, bin_ + 1)
        else:
            sequence = interleaved(block, counts)
            opened = _spread(sequence, needs, takes, held, left, opened, missing)
    return held, missing


def _spread(
    sequence: Sequence[int],
    needs: list[list[float]],
    takes: list[list[float]],
    held: NDArray[np.float64],
    left: NDArray[np.float64],
    opened: int,
    missing: list[int],
) -> int:
    """Thread by thread, in the order of `sequence`; returns how many bins are open afterwards."""
    recent: deque[tuple[int, list[float], list[int]]] = deque(maxlen=LOOK_BACK)
    if opened:
        recent.append((opened - 1, left[opened - 1].tolist(), [0] * len(needs)))
    closed: list[tuple[int, list[float], list[int]]] = []
    full = [False] * len(needs)
    for operator in sequence:
        need = needs[operator]
        if full[operator]:
            missing[operator] += 1
            continue
        for current in reversed(recent):
            free = current[1]
            if all(map(ge, free, need)):
                break
        else:
            while opened < len(left):
                current = (opened, left[opened].tolist(), [0] * len(needs))
                opened += 1
                if len(recent) == recent.maxlen:
                    closed.append(recent[0])
                recent.append(current)
                free = current[1]
                if all(map(ge, free, need)):
                    break
            else:
                full[operator] = True
                missing[operator] += 1
                continue
        current[2][operator] += 1
        free[:] = map(sub, free, takes[operator])
    for bin_, free, row in [*closed, *recent]:
        left[bin_] = free
        held[bin_] += row
    return opened
