"""Separation, fusion and replication: what they make of a pipeline, and that its rates stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from adapters import model, sink, source
from effort import tries
from penstock.base.errors import BadInputError
from penstock.dataflow.code import parse_pipeline, pipeline_document
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream, flows, gains
from penstock.dataflow.rewrite import What, fuse, fuse_busy, replicate, separate, separate_heavy
from penstock.engines.fused.preparation import prepare
from penstock.engines.placed.preparation import prepare_placed
from penstock.inputs.finders import logic_of
from penstock.modelling.fusion import fused_model
from penstock.modelling.library import ModelLibrary, demands_to_run
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.modelling.task_profile import handled_per_tuple, traffic_of
from penstock.planning.prediction.fused import fused_setup
from penstock.runs.config import RunConfig
from strategies import pipelines


def stream(sender: str, receiver: str, **fields: object) -> Stream:
    return Stream.model_validate({"from": sender, "to": receiver, **fields})


# s -> a -> b -> c -> out, x -> b: b joins a with a second source.
JOIN = Pipeline.of(
    "join",
    [source("s"), source("x"), *(Operator(name=name, model=name) for name in "abc"), sink("out")],
    [
        stream("s", "a", selectivity=2, constant=3),
        stream("a", "b", selectivity=0.5, constant=1, bytes=1000),
        stream("x", "b", selectivity=4, bytes=1),
        stream("b", "c", selectivity=3, constant=2, bytes=1),
        stream("a", "c", selectivity=0.1, bytes=1),
        stream("c", "out", bytes=1),
    ],
)


def test_separation_shares_out_streams_and_keeps_rates() -> None:
    new, done = separate(JOIN, "b", 3, "too heavy")
    assert str(done[0]) == "b separated into b.1, b.2, b.3: too heavy"
    assert list(new.operators) == ["s", "x", "a", "b.1", "b.2", "b.3", "c", "out"]
    assert new.operators["b.2"].model == "b"
    # a = 2 W + 3; b = 0.5 a + 1 + 4 W = 5 W + 2.5, each third of it; c = 3 b + 2 + 0.1 a = 15.2 W + 9.8
    found = gains(new)
    assert found["b.1"].at(10) == pytest.approx(52.5 / 3)
    assert (found["c"].factor, found["c"].constant) == pytest.approx((15.2, 9.8))
    assert (gains(JOIN)["c"].factor, gains(JOIN)["c"].constant) == pytest.approx((15.2, 9.8))


def test_declared_threads_are_shared_out_too() -> None:
    pipeline = Pipeline.of("p", [source("s"), Operator(name="a", threads=5, cpu=10, memory_mb=20)], [stream("s", "a")])
    new, _ = separate(pipeline, "a", 2)
    assert [(o.threads, o.cpu) for o in new.operators.values() if o.name != "s"] == [(3, 10), (2, 10)]
    with pytest.raises(BadInputError, match="cannot be separated into 6: it declares 5 threads"):
        separate(pipeline, "a", 6)


def test_fusion_keeps_rates_where_the_receiver_reads_from_others() -> None:
    new, done = fuse(JOIN, "a", "b")
    assert done[0].what is What.FUSED
    assert done[0].into == ("a+b",)
    assert list(new.operators) == ["s", "x", "a+b", "c", "out"]
    found = gains(new)
    # a+b receives 2 W + 3 from s and 4 W from x; c as before
    assert (found["a+b"].factor, found["a+b"].constant) == pytest.approx((6, 3))
    assert (found["c"].factor, found["c"].constant) == pytest.approx((15.2, 9.8))


def test_fusion_of_a_chain_needs_no_selectivity_by_input() -> None:
    pipeline = Pipeline.of(
        "p",
        [source("s"), Operator(name="a", model="a"), Operator(name="b", model="b"), sink("out")],
        [stream("s", "a"), stream("a", "b", selectivity=0.5), stream("b", "out", selectivity=4)],
    )
    new, _ = fuse(pipeline, "a", "b")
    assert new.outputs("a+b")[0].selectivity == 2
    assert not new.outputs("a+b")[0].selectivities


def test_fusion_of_declared_demands_adds_them_up() -> None:
    a = Operator(name="a", threads=4, cpu=10, memory_mb=100)
    b = Operator(name="b", threads=2, cpu=30, memory_mb=50, resources={"gpu": 1})
    new, _ = fuse(Pipeline.of("p", [source("s"), a, b], [stream("s", "a"), stream("a", "b")]), "a", "b")
    # 4 threads: (4 x 10 + 2 x 30) / 4 = 25 points, (400 + 100) / 4 = 125 MB, 2 / 4 gpu
    fused = new.operators["a+b"]
    assert (fused.threads, fused.cpu, fused.memory_mb, fused.resources) == (4, 25, 125, {"gpu": 0.5})


def test_selectivities_follow_a_sender_that_was_separated_or_fused() -> None:
    pipeline = Pipeline.of(
        "p",
        [source("s"), *(Operator(name=name, model=name) for name in "abjk")],
        [
            stream("s", "a"),
            stream("a", "b"),
            stream("b", "j"),
            stream("s", "j", selectivity=5),
            stream("j", "k", selectivities={"b": 3, "s": 0.5}),
        ],
    )
    before = gains(pipeline)["k"].factor
    assert before == 3 + 2.5
    assert gains(separate(pipeline, "b", 2).pipeline)["k"].factor == pytest.approx(before)
    assert gains(fuse(pipeline, "a", "b").pipeline)["k"].factor == pytest.approx(before)


@pytest.mark.parametrize(
    ("rewrite", "complaint"),
    [
        (lambda: separate(JOIN, "nosuch", 2), "unknown operator 'nosuch'"),
        (lambda: separate(JOIN, "s", 2), "'s' cannot be separated: it is a source"),
        (lambda: separate(JOIN, "a", 1), "expected 2 to 1000 parts, found 1"),
        (lambda: fuse(JOIN, "b", "a"), "no stream joins them"),
        (lambda: fuse(JOIN, "a", "c"), "'b' lies on another way from one to the other"),
        (lambda: fuse(JOIN, "c", "out"), "'out' cannot be fused: it is a sink"),
        (lambda: replicate(JOIN, "a", 3), "has a model"),
    ],
)
def test_what_cannot_be_done_is_named(rewrite: object, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        rewrite()  # type: ignore[operator]


def test_keys_that_must_meet_are_not_parted() -> None:
    pipeline = Pipeline.of(
        "p",
        [source("s"), Operator(name="a", model="a"), Operator(name="b", model="b")],
        [stream("s", "a"), stream("a", "b", grouping="fields", key="k")],
    )
    with pytest.raises(BadInputError, match="'a' -> 'b' is grouped by 'fields'"):
        separate(pipeline, "b", 2)
    with pytest.raises(BadInputError, match="the stream between them is grouped by 'fields'"):
        fuse(pipeline, "a", "b")


def test_two_readers_of_one_sender_are_not_fused() -> None:
    pipeline = Pipeline.of(
        "p",
        [source("s"), Operator(name="a", model="a"), Operator(name="b", model="b")],
        [stream("s", "a"), stream("s", "b"), stream("a", "b")],
    )
    with pytest.raises(BadInputError, match="both read from 's'"):
        fuse(pipeline, "a", "b")


@tries(4)
@given(pipelines(), st.data())
def test_rates_of_the_others_stay(pipeline: Pipeline, data: st.DataObject) -> None:
    inner = [name for name, operator in pipeline.operators.items() if operator.kind is Kind.OPERATOR]
    joined = [(s.sender, s.receiver) for s in pipeline.streams if s.sender in inner and s.receiver in inner]
    rewrites = [lambda name=name: separate(pipeline, name, 2) for name in inner]
    rewrites += [lambda pair=pair: fuse(pipeline, *pair) for pair in joined]
    if not rewrites:
        return
    try:
        new, done = data.draw(st.sampled_from(rewrites))()
    except BadInputError:
        return
    old_rates, new_rates = gains(pipeline), gains(new)
    changed = {*done[0].operators, *done[0].into}
    for name in set(pipeline.operators) - changed:
        assert new_rates[name].at(7) == pytest.approx(old_rates[name].at(7), rel=1e-9, abs=1e-9)


# loads 1, 1, 10: the others' median is 1; above 4 x 1, so ceil(10 / 4) = 3 parts
def test_heavy_operators_are_chosen_by_the_median_of_the_others() -> None:
    new, done = separate_heavy(JOIN, {"s": 0, "x": 0, "a": 1, "b": 1, "c": 10, "out": 0}, 4)
    assert [step.into for step in done] == [("c.1", "c.2", "c.3")]
    assert "10 times the median" in done[0].why
    assert separate_heavy(new, dict.fromkeys(new.operators, 1.0), 4).done == ()


def test_replication_changes_the_threads_an_operator_declares() -> None:
    declared = Operator(name="a", threads=2, cpu=10, memory_mb=10)
    new, done = replicate(Pipeline.of("p", [source("s"), declared], [stream("s", "a")]), "a", 5, "for 23 tuples/s")
    assert new.operators["a"].threads == 5
    assert str(done[0]) == "a replicated: 2 -> 5 threads, for 23 tuples/s"


def test_busy_streams_are_fused_and_what_cannot_be_is_said() -> None:
    new, done = fuse_busy(JOIN, 10, 4)
    assert [(step.what, step.operators) for step in done] == [(What.FUSED, ("a", "b"))]
    assert "a+b" in new.operators
    keyed = Pipeline.of(
        "p",
        JOIN.operators.values(),
        [s.model_copy(update={"grouping": "fields", "key": "k"}) if s.bytes == 1000 else s for s in JOIN.streams],
    )
    left = fuse_busy(keyed, 10, 4)
    assert left.pipeline == keyed
    assert [step.what for step in left.done] == [What.LEFT]


def test_the_model_of_a_fused_operator() -> None:
    # one thread: 1 / (1 / 10 + 2 / 40) = 6.667/s; cpu (0.5 / 10 + 2 x 0.8 / 40) x 6.667 = 0.6; memory 0.1 + 0.2
    found = fused_model("a+b", [(model("a", (1, 10, 0.5, 0.1)), 1.0), (model("b", (1, 40, 0.8, 0.2)), 2.0)])
    point = found.points[0]
    assert (point.threads, point.rate, point.cpu, point.memory) == pytest.approx((1, 6.6667, 0.6, 0.3), abs=1e-4)


def test_operators_fused_do_what_they_did_as_neighbours_in_a_thread() -> None:
    """Handling of tuples, batches and the engine count once; memory is known."""
    on = MeasuredOn(
        cpu="x", cores=2, spark="4", slot_memory_mb=1000, date="2030-01-01", batch_seconds=1, batch_overhead_ms=250,
        batch_cpu_ms=100, worker_batch_cpu_ms=10, per=Per.ROW, handling_us=30, column_handling_us=10,
        column_handling_cpu_us=8, base_memory_mb=90, code="a", gets="n long",
    )  # fmt: skip
    first = Point(threads=1, rate=10_000, cpu=0.9, memory=0.1, operator_cpu=0.7, engine_cpu=0.3, busy=0.8, pace=5)
    second = first.model_copy(update={"rate": 8_000, "operator_cpu": 0.6, "batch_spread": 0.1})
    models = [Model("p/a", (first,), on), Model("p/b", (second,), on.model_copy(update={"base_memory_mb": 110}))]
    pipeline = Pipeline.of(
        "p",
        [source("s"), Operator(name="a", logic=same), Operator(name="b", logic=same), sink("out")],
        [stream("s", "a", bytes=1), stream("a", "b", selectivity=2, bytes=1e6), stream("b", "out", bytes=1)],
    )
    library = ModelLibrary.of(models)
    rewritten = penstock.rewrite(pipeline, 50, models=library)
    assert list(rewritten.pipeline.operators) == ["s", "a+b", "out"]
    together = rewritten.models.models["a+b"]

    def setup(of: Pipeline, known: ModelLibrary) -> Any:
        return fused_setup(of, None, demands_to_run(of, known), 1, 1000.0, 2)

    as_two, as_one = setup(pipeline, library), setup(rewritten.pipeline, rewritten.models)
    assert as_one.rate() == pytest.approx(as_two.rate(), rel=0.01)
    assert as_one.cpu_per_tuple == pytest.approx(as_two.cpu_per_tuple, rel=0.01)
    assert as_one.use(1000).cpu == pytest.approx(as_two.use(1000).cpu, rel=0.01)
    # a base of 100 MB on the mean, and 0.1 of 1000 MB each while they have something to do
    assert as_one.use(4000).memory_mb == pytest.approx(100 + 200, rel=0.1)
    # 0.8 / 10000 s of work for a, 2 (0.8 / 8000 - 0.00003) for b without handling
    point = together.points[0]
    assert point.rate / 0.8 == pytest.approx(1 / (0.8 / 10_000 + 2 * (0.8 / 8_000 - 0.00003)))
    assert point.busy == pytest.approx(0.8)
    assert (point.pace, point.batch_spread) == (5, None)
    # 0.08 of a core for batches; the rest of the engine's is for tuples, of which fewer come
    assert point.engine_cpu == pytest.approx(0.08 + 0.22 * point.rate / 10_000)
    assert point.cpu == min(1.0, (point.operator_cpu or 0.0) + (point.engine_cpu or 0.0))
    kept = together.measured_on
    assert (kept.cpu, kept.cores, kept.spark, kept.slot_memory_mb, kept.per) == ("x", 2, "4", 1000, Per.ROW)
    assert (kept.what, kept.code, kept.handling_us) == ("made of the models p/a, p/b", None, 30)
    other = Model("p/b", (second,), MeasuredOn(cpu="y", cores=2))
    assert fused_model("a+b", [(models[0], 1.0), (other, 1.0)]).measured_on.cpu is None


GPU = {"required_labels": ["gpu"], "off_heap_mb": 10}


@pytest.mark.parametrize(
    ("first", "second", "of_pipeline", "why"),
    [
        ({"constraints": GPU}, {}, {}, "their constraints say of other nodes where each may be"),
        ({"threads": 8}, {}, {}, r"not the same \(8 and as planned\)"),
        ({}, {}, {"apart_on_slots": [["b", "a"]]}, "constraints keep them apart"),
    ],
)
def test_what_may_not_be_in_one_place_is_not_fused(
    first: dict[str, Any], second: dict[str, Any], of_pipeline: dict[str, Any], why: str
) -> None:
    built = penstock.pipeline("p").source("s").then("a", model="pi", **first).then("b", model="pi", **second).sink("o")
    with pytest.raises(BadInputError, match=f"operators 'a' and 'b' cannot be fused: .*{why}"):
        fuse(built.constrain(**of_pipeline).build(), "a", "b")


def test_constraints_stay_with_what_was_fused_and_separated() -> None:
    alike: dict[str, Any] = {"model": "pi", "threads": 8, "constraints": GPU}
    built = penstock.pipeline("p").source("s").then("a", **alike).then("b", **alike).then("c", model="pi").sink("o")
    shared = {"operators": ["a", "b"], "mb": 5}
    built.constrain(apart_on_nodes=[["a", "c"], ["b", "c"]], shared_memory=[shared])
    new = fuse(built.build(), "a", "b").pipeline
    fused = new.operators["a+b"]
    assert (fused.threads, fused.constraints.required_labels, fused.constraints.off_heap_mb) == (8, ("gpu",), 20)
    assert new.constraints.apart_on_nodes == (("a+b", "c"),)
    assert new.constraints.shared_memory[0].operators == ("a+b",)
    separated = separate(new, "c", 2).pipeline
    assert separated.constraints.apart_on_nodes == (("a+b", "c.1"), ("a+b", "c.2"))
    assert parse_pipeline(pipeline_document(separated), "file") == separated


def test_a_rewritten_pipeline_can_be_planned() -> None:
    pipeline = Pipeline.of(
        "p",
        [source(), Operator(name="a", model="parse_xml"), Operator(name="b", model="pi"), sink()],
        [stream("source", "a", bytes=1), stream("a", "b", bytes=1e6), stream("b", "sink", bytes=1)],
    )
    found = penstock.rewrite(pipeline, 50)
    assert [str(step.what) for step in found.done] == ["fused"]
    library = penstock.models().updated_with(found.models)
    plan = penstock.plan(found.pipeline, 50, models=library)
    assert plan.prediction.slot_aware.rate >= 50
    with pytest.raises(BadInputError, match=r"busier: expected a factor of at least 1, found 0\.5"):
        penstock.rewrite(pipeline, 50, busier=0.5)


def test_code_of_fused_operators_runs_as_one() -> None:
    """What has code is fused only where it can run: all of one's rows, and no others, go to the other."""
    opened: list[str] = []

    def in_two(row: dict[str, int]) -> list[dict[str, int]]:
        return [{"n": row["n"]}, {"n": row["n"] + 1}]

    def even(row: dict[str, int], factor: int) -> dict[str, int] | None:
        return {"n": row["n"] * factor} if row["n"] % 2 == 0 else None

    def ten() -> int:
        opened.append("opened")
        return 10

    built = penstock.pipeline("p").source("s").then("a", logic=in_two, schema="n long")
    built.then("b", logic=penstock.logic(schema="n long", open=ten, close=lambda _: opened.append("closed"))(even))
    pipeline = built.sink("out").build()
    code = logic_of(fuse(pipeline, "a", "b").pipeline)["a+b"]
    assert code.open is not None
    assert code.close is not None
    handle = code.open()
    # 3 becomes 3 and 4, of which 4 stays; 7 and 8
    assert [code({"n": n}, handle) for n in (3, 7)] == [{"n": 40}, {"n": 80}]
    code.close(handle)
    assert (opened, code.schema) == (["opened", "closed"], "n long")

    branched = penstock.pipeline("p").source("s").then("a", logic=in_two).then("b", logic=in_two).sink("out")
    branched.sink("also", reads="a")
    with pytest.raises(BadInputError, match="code, which runs as one only where nothing else enters or leaves"):
        fuse(branched.build(), "a", "b")


def same(rows: Any) -> Any:
    return rows


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({"per": "row"}, {"per": "pandas"}, "a per row, b per pandas"),
        ({"per": "dataframe"}, {"per": "dataframe"}, "a per dataframe, b per dataframe"),
        ({"per": "map-in-pandas"}, {"per": "map-in-pandas"}, "a per map-in-pandas, b per map-in-pandas"),
        ({"timeout_seconds": 1.0}, {}, "only some of its parts have a time limit"),
        ({"run": "m:f", "per": "pandas"}, {"run": "m:f", "per": "arrow"}, "a per pandas, b per arrow"),
        ({"run": "m:f"}, {"run": "m:f", "per": "dataframe"}, "a per what its code says, b per dataframe"),
        ({"model": "pi"}, {"run": "m:f", "per": "pandas"}, "a per row, b per pandas"),
    ],
)
def test_what_cannot_run_as_one_is_not_fused(first: dict[str, Any], second: dict[str, Any], why: str) -> None:
    def said(of: dict[str, Any]) -> dict[str, Any]:
        return of if {"run", "model"} & set(of) else {"logic": same, **of}

    built = penstock.pipeline("p").source("s").then("a", **said(first)).then("b", **said(second)).sink("out").build()
    with pytest.raises(BadInputError, match=f"cannot be fused: they cannot run as one: {why}"):
        fuse(built, "a", "b")


def test_a_chain_of_a_file_that_cannot_run_as_one_is_refused() -> None:
    parts = [
        {"name": "a", "run": "json:loads", "per": "row"},
        {"name": "b", "run": "json:loads", "per": "pandas"},
    ]
    operators = {"s": {"kind": "source"}, "a+b": {"chain": parts}, "out": {"kind": "sink"}}
    streams = [{"from": "s", "to": "a+b"}, {"from": "a+b", "to": "out"}]
    pipeline = parse_pipeline({"name": "p", "operators": operators, "streams": streams}, "there")
    with pytest.raises(BadInputError, match=r"'a\+b': cannot run as one: a per row, b per pandas"):
        logic_of(pipeline)


def test_sparks_own_operators_are_left_whole() -> None:
    """Each of the parts would see a part of what is grouped."""
    built = penstock.pipeline("p").source("s").then("a", logic=same, per="dataframe").then("b", logic=same)
    built.then("c", logic=same).sink("out")
    with pytest.raises(BadInputError, match="'a' cannot be separated: it is Spark's own"):
        separate(built.build(), "a", 2)
    left = separate_heavy(built.build(), {"a": 10.0, "b": 1.0, "c": 1.0}, 4)
    assert [(step.what, step.operators) for step in left.done] == [(What.LEFT, ("a",))]


def test_a_model_says_what_its_code_gets_where_the_pipeline_does_not() -> None:
    """Of code that `run` names: it is not imported to be asked."""
    pipeline = Pipeline.of(
        "p",
        [source("s"), Operator(name="a", run="m:f"), Operator(name="b", run="m:g"), sink("out")],
        [stream("s", "a", bytes=1), stream("a", "b", bytes=1e6), stream("b", "out", bytes=1)],
    )

    def done(rate_b: float, per_b: str) -> What:
        def measured(name: str, rate: float, per: str) -> Model:
            points = (Point(threads=1, rate=rate, cpu=0.5, memory=0.1),)
            return Model(f"p/{name}", points, MeasuredOn(per=Per(per)))

        library = ModelLibrary.of([measured("a", 1000, "pandas"), measured("b", rate_b, per_b)])
        return penstock.rewrite(pipeline, 50, models=library).done[0].what

    # as fast as a, it is not separated
    assert done(1000, "pandas") is What.FUSED
    assert done(1000, "row") is What.LEFT
    # 50 tuples/s at 10 a thread: 5 threads of half a core
    assert done(10, "pandas") is What.SEPARATED
    assert done(10, "dataframe") is What.LEFT


def test_fused_operators_of_a_file_name_their_code() -> None:
    pipeline = Pipeline.of(
        "p",
        [source(), Operator(name="a", model="parse_xml"), Operator(name="b", model="pi"), sink()],
        [stream("source", "a"), stream("a", "b"), stream("b", "sink")],
    )
    document = pipeline_document(fuse(pipeline, "a", "b").pipeline)
    assert document["operators"]["a+b"]["chain"] == [
        {"name": "a", "model": "parse_xml"},
        {"name": "b", "model": "pi"},
    ]
    again = parse_pipeline(document, "there")
    assert set(logic_of(again)) == {"a+b"}


def test_an_aggregate_is_left_whole() -> None:
    counts = {"key": "word", "outputs": {"n": "count"}, "fields": "word string"}
    counting = Operator.model_validate({"name": "a", "aggregate": counts})
    pipeline = Pipeline.of(
        "p", [source("s"), counting, Operator(name="b", model="pi")], [stream("s", "a"), stream("a", "b")]
    )
    with pytest.raises(BadInputError, match="'a' cannot be separated: it aggregates"):
        separate(pipeline, "a", 2)
    with pytest.raises(BadInputError, match="'a' cannot be fused: it aggregates"):
        fuse(pipeline, "a", "b")


def test_streams_with_a_weight_run_fused_and_placed() -> None:
    pipeline = Pipeline.of(
        "p", [source("s"), Operator(name="a", model="pi")], [stream("s", "a", weight=0.5), stream("s", "a", weight=0.5)]
    )
    assert prepare(pipeline, RunConfig(rate=10, slots=1)).pipeline is pipeline
    placed = prepare_placed(penstock.plan(pipeline, 10)).pipeline
    assert [stream.weight for stream in placed.streams] == [0.5, 0.5]


def test_what_an_operator_moves_follows_weights_and_selectivities_by_input() -> None:
    pipeline = Pipeline.of(
        "p",
        [source("s"), source("x"), Operator(name="a"), Operator(name="b")],
        [stream("s", "a", weight=0.5), stream("x", "a"), stream("a", "b", selectivities={"s": 4}, weight=0.5)],
    )
    # of 10 tuples/s each, a receives 5 from s and 10 from x and sends half of 4 x 5 + 1 x 10
    found = traffic_of(pipeline, flows(pipeline), 10)
    assert found["s"] == (10, (), (5,))
    assert found["a"] == (0, (5, 10), (15,))
    assert found["b"] == (0, (15,), ())
    # handled for each of the 15 received: itself and 15 / 15 sent; s sends half of what it takes in
    assert handled_per_tuple(pipeline, "a") == pytest.approx(2)
    assert handled_per_tuple(pipeline, "s") == pytest.approx(1.5)


def test_weights_are_part_of_what_a_stream_carries() -> None:
    pipeline = Pipeline.of(
        "p",
        [source("s"), Operator(name="a"), Operator(name="b")],
        [stream("s", "a", weight=0.25, constant=4), stream("s", "b", weight=0.75, constant=4)],
    )
    # 0.25 (8 + 4) = 3 and 0.75 (8 + 4) = 9
    assert [gain.at(8) for gain in flows(pipeline).streams] == [3, 9]
    with pytest.raises(BadInputError, match="'s' receives nothing from 'a'"):
        Pipeline.of("p", pipeline.operators.values(), [stream("s", "a", selectivities={"a": 1})])
