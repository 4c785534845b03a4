"""Shuffle partitions: into how many tasks Spark divides its own operators, whatever slots there are."""

from __future__ import annotations

PARTITIONS = "spark.sql.shuffle.partitions"
FEWEST = 2


def partitions_for(slots: int, *, can_grow: bool = False) -> int:
    """Of a run that begins on `slots`. The first batch with state decides for good: the checkpoint keeps the number.

    A partition for every slot; where slots can be added two, so that twice as many still share the work evenly. More
    would be more tasks and files of state in every batch, for slots that may never come.
    """
    return max(FEWEST, 2 * slots if can_grow else slots)
