"""The arithmetic of queues on whole arrays, in nanoseconds."""

from __future__ import annotations

from heapq import heapreplace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_SAFE_BITS = 62
_SMALL_GROUPS = 1 << 16


def in_time(times: Ints) -> Ints | None:
    """Return the order that makes times rise, equal ones as they stand; None if they do already.

    Time and position are packed into one number if they fit, so that sorting moves nothing else.
    """
    size = len(times)
    if size < 2 or bool((times[1:] >= times[:-1]).all()):
        return None
    first = int(times.min())
    bits = size.bit_length()
    if (int(times.max()) - first).bit_length() + bits > _SAFE_BITS:
        return np.argsort(times, kind="stable")
    packed = times - first
    packed <<= bits
    packed |= np.arange(size)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def by_group(groups: Ints, amount: int) -> Ints | None:
    """Return the order that brings groups 0, ..., amount - 1 together, each as it stands; None if they are already."""
    if amount == 1 or len(groups) < 2 or bool((groups[1:] >= groups[:-1]).all()):
        return None
    if amount <= _SMALL_GROUPS:
        return np.argsort(groups.astype(np.uint16), kind="stable")
    return in_time(groups)


def ranks(groups: Ints, counts: Ints) -> Ints:
    """The position of every member within its group, for groups that stand together: 0, 1, ..., 0, 1, ..."""
    return np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)


def completions(arrivals: Ints, work: Ints, threads: Ints, free: Ints) -> Ints:
    """When every tuple is done, where each thread takes its own tuples one after the other.

    Tuples stand thread by thread, each thread's in their order; `free` is when each thread is free at first:

        c_n = max(a_n, c_(n-1)) + s_n  =  S_n + max over m <= n of (max(a_m, free) - S_(m-1)),  S_n = s_1 + ... + s_n

    One running maximum does all threads: thread after thread is lifted by more than any difference within one.
    """
    done = np.cumsum(work)
    begin = np.maximum(arrivals, free[threads])
    begin -= done
    begin += work
    first, last = int(threads[0]), int(threads[-1])
    if first == last:
        np.maximum.accumulate(begin, out=begin)
        begin += done
        return begin
    lowest = int(begin.min())
    lift = int(begin.max()) - lowest + 1
    if ((last - first + 1) * lift).bit_length() > _SAFE_BITS:
        return _thread_by_thread(begin, done, threads)
    lifted = (threads - first) * lift
    begin -= lowest
    begin += lifted
    np.maximum.accumulate(begin, out=begin)
    begin -= lifted
    begin += done
    begin += lowest
    return begin


def _thread_by_thread(begin: Ints, done: Ints, threads: Ints) -> Ints:
    """The same where numbers are too large to be lifted."""
    edges = np.flatnonzero(np.diff(threads)) + 1
    for part in np.split(np.arange(len(begin)), edges):
        begin[part] = np.maximum.accumulate(begin[part])
    begin += done
    return begin


def shared_completions(arrivals: Ints, work: Ints, free: list[int], before: int) -> tuple[Ints, list[int]]:
    """Return the times at which tuples that start before a time are done; the thread that is free first takes the next
    one.

    `free` is a heap; the answer has one time for each started tuple, and the heap after that.
    """
    completed = []
    for arrival, needs in zip(arrivals.tolist(), work.tolist(), strict=True):
        start = max(arrival, free[0])
        if start >= before:
            break
        completed.append(start + needs)
        heapreplace(free, start + needs)
    return np.array(completed, dtype=np.int64), free


def copies(first: int, amount: int, selectivity: float) -> Ints:
    """Return how many tuples each of the next `amount` causes after `first` others: `floor(n q) - floor((n - 1) q)`."""
    counts = np.floor(np.arange(first, first + amount + 1) * selectivity + TOLERANCE).astype(np.int64)
    caused: Ints = np.diff(counts)
    return caused
