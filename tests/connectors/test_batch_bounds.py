"""What the next batch may take in, in offsets: as many as its time holds, and no fewer over holes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.engines.fused.sources.topics import covered_of
from penstock.spark.load_source import MOST_OVER_HOLES, next_bound


@pytest.mark.parametrize(
    ("covered", "tuples", "wall", "bound"),
    [
        # 1,000 tuples took 0.5 s of code, a batch should take 1 s
        (1_000, 1_000, 0.5, 2_000),
        # no more than twenty times as many
        (1_000, 1_000, 0.01, 20_000),
        (1_000, 1_000, 4.0, 250),
        # every tenth offset has a message: 100 of them took 0.05 s
        (1_000, 100, 0.05, 20_000),
        # a batch without tuples: the bound of 500 grows
        (1_000, 0, 0.0, 20_000),
        # it does not fall, where all there was is what ends a transaction
        (1, 0, 0.0, 500),
        # behind holes every offset may have a message
        (900_000, 0, 0.0, MOST_OVER_HOLES),
        (900_000, 3, 0.01, MOST_OVER_HOLES),
        # where tuples are as many, they say themselves how many are not too many
        (900_000, 900_000, 0.5, 1_800_000),
        # of the first batch nobody knows where it began
        (0, 1_000, 0.5, 2_000),
        # no code of ours ran
        (1_000, 1_000, 0.0, 500),
    ],
)
def test_the_next_bound(covered: int, tuples: int, wall: float, bound: int) -> None:
    assert next_bound(500, covered, tuples, wall, 1.0) == bound


def test_what_a_batch_went_over() -> None:
    topics = SimpleNamespace(startOffset='{"t": {"0": 10, "1": 5}}', endOffset='{"t": {"0": 110, "1": 5, "2": 40}}')
    begun = SimpleNamespace(startOffset=None, endOffset='{"u": {"0": 7}}')
    load = SimpleNamespace(startOffset='{"tuples": 3}', endOffset='{"tuples": 9}')
    assert covered_of(cast("Any", SimpleNamespace(sources=[topics, begun, load]))) == 100
