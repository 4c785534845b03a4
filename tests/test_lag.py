"""What waits in topics, by topic and partition: of several sources, in reports and in figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.base.errors import BadInputError
from penstock.dataflow.formats import Reading
from penstock.engines.fused.sources.topics import connector_of, lag_of, reached_by
from penstock.report.figures import RecentBatches, by_source, kept_apart, waiting_notes
from penstock.report.report import Audit, BatchObservation, summarise


@pytest.mark.parametrize(
    ("lags", "joined"),
    [
        ([], {}),
        ([{"a/0": 1, "a/1": 2}, {"b/0": 3}], {"a/0": 1, "a/1": 2, "b/0": 3}),
        # three sources that are each somewhere else in one topic
        ([{"a/0": 1}, {"a/0": 5}, {"a/0": 9, "a/1": 0}], {"a/0": 1, "a/0#2": 5, "a/0#3": 9, "a/1": 0}),
    ],
)
def test_sources_on_one_topic_are_kept_apart(lags: list[dict[str, int]], joined: dict[str, int]) -> None:
    assert kept_apart(lags) == joined
    assert by_source({f"s{n}/{where}": count for n, lag in enumerate(lags) for where, count in lag.items()}) == joined


def source(end: int, latest: int) -> Any:
    return SimpleNamespace(endOffset=f'{{"t": {{"0": {end}}}}}', latestOffset=f'{{"t": {{"0": {latest}}}}}')


def test_two_sources_of_a_query_on_one_topic_both_count() -> None:
    progress: Any = SimpleNamespace(sources=[source(10, 14), source(2, 14)])
    assert lag_of(progress) == {"t/0": 4, "t/0#2": 12}
    assert waiting_notes({"t/0": 0, "t/0#2": 1200}) == ["topic and partition t/0#2: 1,200 messages wait"]


def test_each_of_two_sources_on_one_topic_has_read_as_far_as_it_has() -> None:
    progress: Any = SimpleNamespace(sources=[source(10, 14), SimpleNamespace(endOffset="7"), source(2, 14)])
    topics = {"first": ("t",), "second": ("t",), "third": ("t",), "other": ("u",)}
    assert reached_by(topics, progress) == {"first": {"t": {"0": 10}}, "second": {"t": {"0": 2}}}


def test_a_group_needs_our_own_connector() -> None:
    reading = Reading("kafka", {"connector": "spark", "groupId": "readers"})
    session: Any = None
    with pytest.raises(BadInputError, match="source 's': option groupId: only our own connector tells a group"):
        connector_of(session, reading, "source 's'")


def test_reports_and_figures_have_the_lag_of_the_last_batch() -> None:
    recent, batches = RecentBatches(None, None), []
    for second in range(4):
        batches.append(BatchObservation(100.0 + second, 10, second, np.array([0.1]), {}, (), lag={"t/0": second}))
        recent.add(batches[-1])
    figures = recent.figures()
    assert figures is not None
    assert figures.lag == {"t/0": 3}
    report = summarise(batches, None, 1.0, Audit(40, None, None, 0, 0))
    assert report.document()["lag"] == {"t/0": 3}
