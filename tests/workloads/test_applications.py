"""The applications' code against answers worked out another way, over the same messages. Nothing here needs Spark: what
is Spark's own is in tests/spark/test_applications.py."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

import application_answers as answers
import penstock
from penstock.dataflow.code import parse_pipeline, pipeline_document
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Kind, Pipeline, topological_order
from penstock.inputs.finders import builtin_pipeline, known_pipelines, logic_of
from penstock.workloads.applications import micro, pages, use_cases
from penstock.workloads.applications.messages import MESSAGES, auction_event, page_event, tweet
from penstock.workloads.applications.sentiment import VALENCE
from penstock.workloads.incoming import message_of
from penstock.workloads.operators import reference_logic
from penstock.workloads.operators.words import line

COUNT = 400
APPLICATIONS = [
    name
    for name in known_pipelines()
    if any(
        (one.run or "").startswith("penstock.workloads.applications")
        for one in builtin_pipeline(name).operators.values()
    )
]


def called(code: Logic, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Row by row, as a slot calls it."""
    opened = [code.open()] if code.open is not None else []
    out: list[dict[str, Any]] = []
    try:
        for row in rows:
            sent = code(row, *opened)
            out += [] if sent is None else [sent] if isinstance(sent, dict) else list(sent)
    finally:
        if code.close is not None:
            code.close(*opened)
    return out


def message_bytes(data: str, number: int) -> bytes:
    """As a topic has it."""
    message = MESSAGES[data](number)
    return message.encode() if isinstance(message, str) else json.dumps(message).encode()


@pytest.fixture(autouse=True)
def _no_service_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent does not depend on the CPU an operator uses, or on the clock."""
    monkeypatch.setattr(use_cases, "use_cpu", lambda seconds: None)
    monkeypatch.setattr(use_cases, "now", lambda: 1.0)


def flowed(
    pipeline: Pipeline, count: int = COUNT, data: str | None = None, *, reference_tasks: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """What every operator with code per row sends: from numbers on, or from messages of `data` as a topic has them.
    Reference tasks are left out unless what they need is there."""
    values = [number if data is None else message_bytes(data, number) for number in range(count)]
    logic = logic_of(pipeline)
    sent: dict[str, list[dict[str, Any]]] = {}
    for name in topological_order(pipeline):
        operator = pipeline.operators[name]
        senders = [stream.sender for stream in pipeline.inputs(name)]
        if operator.kind is Kind.SOURCE:
            sent[name] = [{"value": value} for value in values]
        elif all(sender in sent for sender in senders) and (operator.model is None or reference_tasks):
            rows = [row for sender in senders for row in sent[sender]]
            if operator.kind is Kind.SINK:
                sent[name] = rows
            elif name in logic and logic[name].per is Per.ROW:
                sent[name] = called(logic[name], rows)
    return sent


@pytest.mark.parametrize("name", APPLICATIONS)
def test_each_is_planned_and_simulated_from_its_models(name: str) -> None:
    # enough for a query that lets one tuple of a thousand through; little where a tuple needs 0.4 s of CPU
    plan = penstock.plan(name, rate=100 if name.startswith("nexmark") else 1 if name.startswith("tp") else 5)
    assert plan.document()["slots"]["placed"] >= 1
    assert penstock.simulate(plan, seconds=30).document()["stable"]


@pytest.mark.parametrize("name", APPLICATIONS)
def test_what_code_sends_is_what_its_schema_says(name: str) -> None:
    pipeline = builtin_pipeline(name)
    logic = logic_of(pipeline)
    for operator, rows in flowed(pipeline, 60).items():
        if operator in logic:
            columns = [column.split()[0] for column in (logic[operator].schema or "").split(", ")]
            assert all(list(row) == columns for row in rows)


DATA = {
    **dict.fromkeys(("word-count", "word-count-json", "top-n"), "sentences"),
    **dict.fromkeys(("page-load", "processing"), "page-events"),
    **{name: "auctions" for name in known_pipelines() if name.startswith("nexmark")},
    "twitter-sentiment": "tweets",
    **dict.fromkeys(("event-tp", "archival-tp"), "gateway-lines"),
    **dict.fromkeys(("tp1", "tp2"), "feed-lines"),
}
"""What each reads from a topic; all others any message with a number."""


@pytest.mark.parametrize("name", known_pipelines())
def test_messages_of_a_topic_are_worked_on_as_their_numbers_are(name: str, around: dict[str, str]) -> None:
    pipeline = builtin_pipeline(name)
    from_numbers = flowed(pipeline, 20, reference_tasks=True)
    from_messages = flowed(pipeline, 20, DATA.get(name, "payloads"), reference_tasks=True)
    for source in pipeline.sources:
        assert all(isinstance(row["value"], bytes) for row in from_messages.pop(source))
        del from_numbers[source]
    assert from_messages == from_numbers != {}


@pytest.mark.parametrize("value", [b'{"text": "no number"}', b'{"id": "7", "text": "a word"}', b"[7]", b"{"])
@pytest.mark.parametrize("name", reference_logic)
def test_reference_tasks_take_no_message_without_a_number(name: str, value: bytes, around: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        called(reference_logic[name], [{"value": value}])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("app-traffic", answers.traffic), ("app-finance", answers.finance), ("app-grid", answers.grid)],
)
def test_pipelines_of_reference_tasks(name: str, expected: answers.Expected, around: dict[str, str]) -> None:
    rows = flowed(builtin_pipeline(name), 50, reference_tasks=True)["sink"]
    assert answers.frozen(rows) == answers.frozen(expected(50))


@pytest.mark.parametrize("name", ["word-count-json", "top-n"])
def test_words(name: str) -> None:
    words = Counter(row["word"] for row in flowed(builtin_pipeline(name))["split"])
    assert words == Counter(word for number in range(COUNT) for word in line(number).split(" "))


def test_sentiment() -> None:
    """By regular expressions instead of lists of words, and by the generator's own choice of a language."""
    sent = flowed(builtin_pipeline("twitter-sentiment"))
    english = [
        n for n in range(COUNT) if re.search(r"\b(the|and|is|was|this|that|with|you|for|have)\b", tweet(n)["text"])
    ]
    assert {row["ts"] for row in sent["language"]} == {tweet(n)["ts"] for n in english}
    for row in sent["sentiment"]:
        words = re.findall(r"(?<!\S)[a-z]+(?!\S)", row["text"])
        assert row["score"] == sum(VALENCE[word] for word in words if word in VALENCE)
        assert -5 * len(words) <= row["score"] <= 5 * len(words)
    moods = Counter((row["score"] > 0) - (row["score"] < 0) for row in sent["score"])
    assert moods == Counter({"glad": 1, "sad": -1, "neither": 0}[row["mood"]] for row in sent["score"])
    tags = Counter(tag for n in english for tag in re.findall(r"#(\w+)", tweet(n)["text"]))
    assert Counter(row["tag"] for row in sent["hashtags"]) == tags
    pipeline = builtin_pipeline("twitter-sentiment")
    assert sum(one.kind is not Kind.SINK for one in pipeline.operators.values()) == 11


def test_the_lexicon_goes_from_minus_five_to_plus_five() -> None:
    assert set(VALENCE.values()) == {-5, -4, -3, -2, -1, 1, 2, 3, 4, 5}


def test_page_load_and_processing() -> None:
    events = [page_event(n) for n in range(COUNT)]
    people = [event for event in events if event["agent"] != "crawler"]
    sent = flowed(builtin_pipeline("page-load"))
    paid = [e for e in people if int(e["page"][4:]) * 7 % 20 % 2 == 0]
    assert [row["id"] for row in sent["filter2"]] == [event["id"] for event in paid]
    sent = flowed(builtin_pipeline("processing"))
    assert sum(row["price"] for row in sent["sink1"]) == pytest.approx(
        sum(e["cents"] * {"view": 0.1, "click": 1, "load": 0.05, "purchase": 5}[e["kind"]] for e in people) / 100
    )
    assert sum(row["slow"] for row in sent["sink2"]) == sum(event["millis"] > 1000 for event in events)
    assert len(sent["sink2"]) == COUNT
    assert set(pages.CAMPAIGN_OF_PAGE.values()) == {f"campaign{n}" for n in range(20)}


@pytest.mark.parametrize(
    ("name", "times"),
    # paths from the sources to the sinks
    [("linear-network", 1), ("diamond-cpu", 3), ("star-network", 4), ("micro-linear", 1), ("micro-star", 4)],
)
def test_micro_pipelines_deliver_every_tuple_once_a_path(name: str, times: int) -> None:
    pipeline = builtin_pipeline(name)
    sent = flowed(pipeline, 20)
    ends = [
        row["id"] for sink in pipeline.operators if pipeline.operators[sink].kind is Kind.SINK for row in sent[sink]
    ]
    assert Counter(ends) == Counter(dict.fromkeys(range(20), times))


@pytest.mark.parametrize("selectivity", [0.5, 0.3, 1.5, 2.0])
def test_selectivity_is_an_option(selectivity: float) -> None:
    """k operators in a row send s^k for one on average. Of 2,000 tuples and s = 0.3 that are 54 behind the third, by
    chance 7 more or fewer; operators that all chose the same would send 600."""
    pipeline = penstock.find_pipeline(f"micro-linear:bound=io,selectivity={selectivity}")
    sent = flowed(pipeline, 2_000, reference_tasks=True)
    for power, operator in enumerate(("op1", "op2", "op3"), 1):
        assert len(sent[operator]) / 2_000 == pytest.approx(selectivity**power, rel=0.3)
    # what the streams are said to carry is what the code sends
    assert [stream.selectivity for stream in pipeline.streams] == [1.0] + [selectivity] * 3
    assert penstock.plan(pipeline, rate=5).document()["slots"]["placed"] >= 1


def test_an_operator_always_sends_as_many_for_the_same_tuple() -> None:
    assert [micro.copies(number, 2.0, 1) for number in range(5)] == [2] * 5
    for place in (1, 2):
        counts = [micro.copies(number, 1.5, place) for number in range(100)]
        assert set(counts) == {1, 2}
        assert counts == [micro.copies(number, 1.5, place) for number in range(100)]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("micro-linear:bound=memory", ["memory"] * 3),
        ("micro-linear:selectivity=2", [f"cpu*2.0@{place}" for place in (1, 2, 3)]),
        ("micro-diamond:selectivity=0.5", ["cpu*0.5@1", "io*0.5@2", "sojourn*0.5@3", "memory*0.5@4", "io*0.5@5"]),
        ("micro-diamond:bound=sojourn", ["sojourn"] * 5),
        ("micro-star:bound=cpu,selectivity=3", [f"cpu*3.0@{place}" for place in (2, 3, 4)]),
    ],
)
def test_kinds_and_selectivity_are_options_of_the_name(name: str, kinds: list[str]) -> None:
    pipeline = penstock.find_pipeline(name)
    code = [operator.run for operator in pipeline.operators.values() if operator.run is not None]
    assert code == [f"penstock.workloads.applications.micro:{kind}" for kind in kinds]
    # its code is named, so a file can carry it
    document = pipeline_document(pipeline)
    assert set(logic_of(parse_pipeline(document, "again"))) == set(logic_of(pipeline))
    assert penstock.simulate(penstock.plan(name, rate=5), seconds=10).document()["stable"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("micro-linear:bound=disk", "pipeline 'micro-linear': bound: .*'cpu', 'io', 'sojourn' or 'memory'"),
        ("micro-star:selectivity=-1", "pipeline 'micro-star': selectivity"),
        ("micro-star:selectivity=nan", "pipeline 'micro-star': selectivity"),
        ("micro-diamond:kind=io", "pipeline 'micro-diamond': unknown option 'kind'; known: bound, selectivity"),
        ("micro-diamond:io", "expected option=value, found 'io'"),
    ],
)
def test_wrong_options_are_said(name: str, complaint: str) -> None:
    with pytest.raises(penstock.BadInputError, match=complaint):
        penstock.find_pipeline(name)


def test_code_of_no_kind_is_not_there() -> None:
    for name in ("disk", "disk*2", "io*many", "io*2@here"):
        with pytest.raises(AttributeError, match="has no attribute"):
            getattr(micro, name)


def test_what_memory_bound_operators_keep() -> None:
    """300 s, looked over every 60 s: one message every 10 s, and the clock is ours."""
    at = [0.0]
    kept = micro.Kept(lambda: at[0])
    longest = 0
    for number in range(200):
        at[0] = 10.0 * number
        kept.take({"id": number})
        oldest = at[0] - kept.messages[0][0]
        # what is too old stays until the window slides, and never longer
        assert oldest < 300 + 60
        assert number % 6 or oldest <= 300
        longest = max(longest, len(kept.messages))
    assert [message["id"] for _, message in kept.messages] == list(range(168, 200))
    assert longest == 36


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q0", lambda events: [json.dumps(e) for e in events]),
        ("q1", lambda events: [round(e["price"] * 0.908, 3) for e in events if e["kind"] == "bid"]),
        ("q2", lambda events: [e["price"] for e in events if e["kind"] == "bid" and e["auction"] % 123 == 0]),
    ],
)
def test_nexmark_queries_of_rows(query: str, expected: Any) -> None:
    events = [MESSAGES["auctions"](n) for n in range(2_000)]
    column = {"q0": "event", "q1": "euros", "q2": "price"}[query]
    rows = flowed(builtin_pipeline(f"nexmark-{query}"), 2_000)["sink"]
    if query == "q0":
        assert [json.loads(row["event"]) for row in rows] == events
    else:
        assert [row[column] for row in rows] == expected(events)
    assert rows


def test_an_auction_has_people_auctions_and_bids_for_open_ones() -> None:
    events = [auction_event(n) for n in range(5_000)]
    kinds = Counter(event["kind"] for event in events)
    assert kinds == {"person": 100, "auction": 300, "bid": 4_600}
    opened = people = 0
    for event in events:
        if event["kind"] == "person":
            assert event["person"] == people
            people += 1
        elif event["kind"] == "auction":
            assert (event["auction"], event["seller"] < people) == (opened, True)
            opened += 1
        else:
            # three auctions of its round may not have opened yet when it is made: none of them is bid for
            assert event["auction"] < opened
            assert event["bidder"] < people


def test_messages_are_numbers_or_json() -> None:
    assert message_of({"value": 3}, tweet) == tweet(3)
    assert message_of({"value": json.dumps(tweet(3)).encode()}, tweet) == tweet(3)
    for wrong in (b"{", b"[1]", b"\xff"):
        with pytest.raises(ValueError, match=r".+"):
            message_of({"value": wrong}, tweet)
