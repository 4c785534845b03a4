"""Segments: which operators run as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from adapters import chain, library, sink, source
from effort import tries
from penstock.base.errors import BadInputError, PenstockError
from penstock.cluster.topology import Slot
from penstock.dataflow.pipeline import Kind, Operator, Pipeline
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import Model, Point
from penstock.planning.registry import SEGMENTERS
from penstock.planning.segmentation import Costs, Segment, costs_of, segmentation, segments_on_slots
from strategies import pipelines


def models(**peaks: float) -> ModelLibrary:
    return ModelLibrary.of(
        Model(name, (Point(threads=1, rate=peak, cpu=1.0, memory=0.1),)) for name, peak in peaks.items()
    )


def inner(name: str) -> Operator:
    return Operator(name=name, model=name)


# At 1 tuple/s a and b compute 1/100 + 1/100 = 0.02 s; 5 MB at 1000 Mbit/s (125 MB/s) take 0.04 s: ccr 2.
@pytest.mark.parametrize(
    ("asked", "segments"),
    [
        ("ccr", (("a", "b"), ("sink",), ("source",))),
        ("ccr:delta=2", (("a",), ("b",), ("sink",), ("source",))),
        ("ccr:delta=1.9", (("a", "b"), ("sink",), ("source",))),
        ("ccr:bandwidth_mbps=10000", (("a",), ("b",), ("sink",), ("source",))),
    ],
)
def test_ccr_by_hand(asked: str, segments: tuple[Segment, ...]) -> None:
    pipeline = Pipeline.of(
        "p",
        [source(), inner("a"), inner("b"), sink()],
        [
            *chain(source(), inner("a")).streams,
            *chain(inner("a"), inner("b"), bytes=5e6).streams,
            *chain(inner("b"), sink()).streams,
        ],
    )
    found = penstock.segments(pipeline, segmenter=asked, models=models(a=100, b=100))
    assert sorted(found.segments) == list(segments)
    assert found.segments[0] == ("source",)
    assert all(channel.bytes == 0 for channel in found.channels) or len(found.segments) == 4


def test_a_cost_per_tuple_fuses_what_computes_little() -> None:
    # handing over takes 1 ms a tuple: source-a 0.001 / 0.01, a-b 0.001 / (0.01 + 0.0001), b-sink 0.001 / 0.0001 = 10
    pipeline = chain(source(), inner("a"), inner("b"), sink())
    found = penstock.segments(pipeline, segmenter="ccr:overhead_us=1000", models=models(a=100, b=10_000))
    assert found.segments == (("source",), ("a",), ("b", "sink"))


def test_without_sizes_every_operator_stands_alone() -> None:
    assert penstock.segments("star").segments == penstock.segments("star", segmenter="single").segments


def test_whole_is_one_segment_in_topological_order() -> None:
    found = penstock.segments("diamond", segmenter="whole")
    assert len(found.segments) == 1
    assert found.segments[0][0] == "source"
    assert found.channels == ()


def test_whole_and_single_need_no_models() -> None:
    pipeline = chain(source(), inner("unheard-of"), sink())
    assert penstock.segments(pipeline, segmenter="whole").segments == (("source", "unheard-of", "sink"),)
    with pytest.raises(BadInputError, match="no model named 'unheard-of'"):
        penstock.segments(pipeline, segmenter="ccr")


def test_declared_demands_count_as_they_are() -> None:
    declared = Operator(name="a", threads=4, cpu=50, memory_mb=10)
    costs = costs_of(chain(source(), declared, bytes=10), library({"models": {}}), 3)
    assert costs == Costs({"source": 0.0, "a": 2.0}, (3.0,), (30.0,))


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("ccx", "unknown segmenter 'ccx'; did you mean 'ccr'?"),
        ("ccr:bandwidth_mbps=0", "bandwidth_mbps: Input should be greater than 0"),
        ("ccr:delta=-1", "delta: Input should be greater than or equal to 0"),
    ],
)
def test_bad_segmenters_are_named(asked: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint.replace("?", r"\?")):
        penstock.segments("linear", segmenter=asked)


@tries(2)
@given(pipelines(), st.data())
def test_every_operator_once_and_no_segment_waits_for_a_later_one(pipeline: Pipeline, data: st.DataObject) -> None:
    streams = [s.model_copy(update={"bytes": data.draw(st.sampled_from([0.0, 1e5, 1e7]))}) for s in pipeline.streams]
    sized = Pipeline.of("random", pipeline.operators.values(), streams)
    named = [operator.model for operator in sized.operators.values() if operator.model is not None]
    known = models(**dict.fromkeys(named, 50.0))
    for name in SEGMENTERS.names():
        found = penstock.segments(sized, segmenter=name, models=known, rate=10)
        place = {operator: number for number, segment in enumerate(found.segments) for operator in segment}
        assert sorted(operator for segment in found.segments for operator in segment) == sorted(sized.operators)
        assert all(place[stream.sender] <= place[stream.receiver] for stream in sized.streams)
        assert {(s.sender, s.receiver) for s in found.channels} == {
            (s.sender, s.receiver) for s in sized.streams if place[s.sender] != place[s.receiver]
        }


@dataclass(frozen=True)
class Fixed:
    name: ClassVar[str] = "fixed"
    needs_costs: ClassVar[bool] = False

    answer: tuple[Segment, ...]

    def segments(self, pipeline: Pipeline, costs: Costs | None) -> tuple[Segment, ...]:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ((("source", "a"),), "did not put every operator into one segment"),
        ((("source", "b"), ("a", "sink")), "segments that wait for each other"),
    ],
)
def test_answers_of_others_are_checked(answer: tuple[Segment, ...], complaint: str) -> None:
    pipeline = chain(source(), inner("a"), inner("b"), sink())
    with pytest.raises(PenstockError, match=complaint):
        segmentation(pipeline, Fixed(answer), None)


def on(*rows: dict[str, int]) -> dict[Slot, dict[str, int]]:
    return {Slot("n", number): row for number, row in enumerate(rows)}


# source -> a -> b -> sink, all wanted as one; what does not sit together is taken apart
@pytest.mark.parametrize(
    ("threads", "segments"),
    [
        (on({"source": 1, "a": 1, "b": 2, "sink": 1}), [("source", "a", "b", "sink")]),
        (on({"source": 1, "a": 1}, {"b": 2, "sink": 1}), [("source", "a"), ("b", "sink")]),
        # half of a and half of b on each slot: a tuple may stay where it is; the source emits from one slot
        (
            on({"source": 1, "a": 2, "b": 4, "sink": 1}, {"source": 1, "a": 2, "b": 4}),
            [("source",), ("a", "b"), ("sink",)],
        ),
        # a third of a but half of b on the first slot: b there would get too little
        (on({"source": 1, "a": 1, "b": 1, "sink": 1}, {"a": 2, "b": 1}), [("source",), ("a",), ("b",), ("sink",)]),
    ],
)
def test_segments_on_slots(threads: dict[Slot, dict[str, int]], segments: list[Segment]) -> None:
    pipeline = chain(source(), inner("a"), inner("b"), sink())
    assert list(segments_on_slots(pipeline, [("source", "a", "b", "sink")], threads)) == segments


def test_a_key_keeps_its_slot() -> None:
    # both operators on both slots, but a key belongs to one of them
    pipeline = chain(inner("a"), inner("b"), grouping="fields", key="id")
    halves = on({"a": 1, "b": 1}, {"a": 1, "b": 1})
    assert list(segments_on_slots(pipeline, [("a", "b")], halves)) == [("a",), ("b",)]
    assert list(segments_on_slots(pipeline, [("a", "b")], on({"a": 1, "b": 1}))) == [("a", "b")]


def test_a_way_round_through_another_slot_keeps_segments_apart() -> None:
    # a and c sit together, b between them does not: as one they would wait for b, which waits for them
    pipeline = Pipeline.of(
        "p",
        [inner("a"), inner("b"), inner("c")],
        [*chain(inner("a"), inner("b"), inner("c")).streams, *chain(inner("a"), inner("c")).streams],
    )
    found = segments_on_slots(pipeline, [("a", "b", "c")], on({"a": 1, "c": 1}, {"b": 1}))
    assert list(found) == [("a",), ("b",), ("c",)]


def test_only_what_was_wanted_together_is_joined() -> None:
    pipeline = chain(source(), inner("a"), inner("b"), sink())
    everything = on({"source": 1, "a": 1, "b": 1, "sink": 1})
    wanted = penstock.segments(pipeline, segmenter="ends").segments
    assert list(segments_on_slots(pipeline, wanted, everything)) == [("source", "a"), ("b", "sink")]


@pytest.mark.parametrize("name", ["linear", "diamond", "star"])
def test_ends_join_their_only_neighbour(name: str) -> None:
    found = penstock.segments(name, segmenter="ends").segments
    pipeline = penstock.find_pipeline(name)
    for operator in pipeline.operators.values():
        neighbours = len(pipeline.outputs(operator.name)) + len(pipeline.inputs(operator.name))
        if operator.kind is not Kind.OPERATOR:
            assert any(operator.name in one and len(one) > 1 for one in found) == (neighbours == 1)
