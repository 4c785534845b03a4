"""Messages between conductor and bundles: each comes back as it was sent, and spoilt bytes are rejected in one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.commit import Output
from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import Grouping
from penstock.engines.placed import messages as m
from penstock.engines.placed.flow.layout import Channel
from penstock.engines.placed.flow.routing import ReceivingBundle, Route

TEXT = st.text(max_size=8)
NUMBER = st.integers(0, 2**62)
REAL = st.floats(allow_nan=False)
ADDRESS = st.tuples(TEXT, st.integers(1, 65535))
CHANNEL = st.builds(Channel, NUMBER, TEXT, TEXT)
COUNTS = st.dictionaries(TEXT, NUMBER, max_size=3)
PLACE = st.builds(
    m.TaskPlace,
    NUMBER,
    st.none() | NUMBER,
    st.dictionaries(TEXT, st.lists(TEXT, max_size=2).map(tuple), max_size=2),
    st.none() | TEXT,
    st.none() | TEXT,
)
TARGET = st.builds(ReceivingBundle, TEXT, NUMBER, REAL, st.booleans())
ROUTE = st.builds(
    Route,
    NUMBER,
    TEXT,
    NUMBER,
    st.tuples(REAL, REAL),
    st.sampled_from(Grouping),
    st.lists(TEXT, max_size=2).map(tuple),
    st.lists(TARGET, max_size=2).map(tuple),
)
SPELL = st.tuples(st.floats(1, 100) | st.integers(1, 100), st.floats(1, 1e6) | st.integers(1, 10**6))
LOAD = st.builds(Load, st.lists(SPELL, min_size=1, max_size=3).map(tuple), st.booleans())
OUTPUT = st.builds(Output, sink=TEXT, staged=TEXT, final=TEXT, rows=NUMBER)
ORDER = st.builds(
    m.GenerationOrder,
    run=TEXT,
    conductor=NUMBER,
    generation=NUMBER,
    epoch=NUMBER,
    inputs=st.frozensets(CHANNEL, max_size=3),
    outputs=st.lists(st.tuples(CHANNEL, ADDRESS), max_size=3).map(tuple),
    routes=st.lists(ROUTE, max_size=2).map(tuple),
    threads=COUNTS,
    offsets=COUNTS,
    states=st.dictionaries(NUMBER, TEXT, max_size=3),
    groups=st.tuples(NUMBER, NUMBER),
    held=st.booleans(),
    careful=st.booleans(),
    load=LOAD,
    began=REAL,
    limit=st.none() | NUMBER,
    checkpoint=TEXT,
)
STAGED = st.builds(
    m.StagedReport,
    NUMBER,
    NUMBER,
    st.dictionaries(TEXT, st.none() | NUMBER, max_size=3),
    st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
    st.lists(OUTPUT, max_size=2).map(tuple),
    st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
    st.dictionaries(st.integers(-1000, 1000), NUMBER, max_size=3),
    st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=2).map(tuple),
    COUNTS,
    COUNTS,
    st.lists(TEXT, max_size=2).map(tuple),
)
MADE: dict[type[m.Message], st.SearchStrategy[Any]] = {
    m.BundleHello: st.builds(m.BundleHello, TEXT, NUMBER, ADDRESS, PLACE),
    m.LinkHello: st.builds(m.LinkHello, NUMBER, CHANNEL),
    m.GenerationOrder: ORDER,
    m.EpochOrder: st.builds(m.EpochOrder, NUMBER, NUMBER, st.booleans()),
    m.GoOrder: st.builds(m.GoOrder, NUMBER),
    m.LimitOrder: st.builds(m.LimitOrder, NUMBER),
    m.WatchOrder: st.builds(m.WatchOrder, st.dictionaries(NUMBER, st.tuples(TEXT, REAL), max_size=3)),
    m.EndOrder: st.just(m.EndOrder()),
    m.BeatReport: st.builds(m.BeatReport, st.dictionaries(TEXT, REAL, max_size=3)),
    m.LinkedReport: st.builds(m.LinkedReport, NUMBER),
    m.BrokenReport: st.builds(m.BrokenReport, NUMBER, TEXT),
    m.FirstReport: st.builds(m.FirstReport, NUMBER),
    m.GaveUpReport: st.builds(m.GaveUpReport, NUMBER, TEXT),
    m.StagedReport: STAGED,
}
CODECS: tuple[m.Codec[Any], ...] = (m.BUNDLE_HELLOS, m.LINK_HELLOS, m.ORDERS, m.REPORTS)


def codec_of(kind: type[m.Message]) -> m.Codec[Any]:
    return next(codec for codec in CODECS if kind.__name__ in codec.names)


def error_of(codec: m.Codec[Any], text: bytes) -> str:
    """Return the complaint; empty if the text is a message all the same, as one with another digit is."""
    try:
        codec.decode(text)
    except m.MessageError as error:
        return str(error)
    return ""


def test_every_message_is_tried_here() -> None:
    assert sorted(kind.__name__ for kind in MADE) == sorted(name for codec in CODECS for name in codec.names)


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_a_message_comes_back_as_it_was_sent(kind: type[m.Message]) -> None:
    codec = codec_of(kind)

    @settings(max_examples=50, deadline=None)
    @given(MADE[kind])
    def comes_back(message: m.Message) -> None:
        text = codec.encode(message)
        back = codec.decode(text)
        assert (back, type(back)) == (message, kind)
        assert codec.encode(back) == text or kind is m.GenerationOrder  # whose set of inputs has no order

    comes_back()


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_spoilt_bytes_are_rejected_in_one_line(kind: type[m.Message]) -> None:
    codec = codec_of(kind)

    @settings(max_examples=50, deadline=None)
    @given(MADE[kind], st.data())
    def rejected(message: m.Message, data: st.DataObject) -> None:
        text = codec.encode(message)
        at = data.draw(st.integers(0, len(text) - 1))
        other = data.draw(st.binary(max_size=3))
        for spoilt in (text[:at], text[:at] + other + text[at + 1 :]):
            error = error_of(codec, spoilt)
            assert "\n" not in error
            assert len(error) < 1000
        with pytest.raises(m.MessageError):
            codec.decode(text[:at])

    rejected()


CHANNEL_TEXT = b'{"stream":1,"sender":"a","receiver":"b"}'


@pytest.mark.parametrize(
    ("codec", "text", "said"),
    [
        (m.ORDERS, b"GoOrders {}", "unknown message 'GoOrders'; did you mean 'GoOrder'? known: GenerationOrder, "),
        (m.ORDERS, b'LinkedReport {"generation":1}', "unknown message 'LinkedReport'; "),
        (m.ORDERS, b"", "unknown message ''; "),
        (
            m.ORDERS,
            b'GoOrder {"generation":1,"pace":2}',
            "message 'GoOrder': pace: Unexpected keyword argument, found 2",
        ),
        (m.ORDERS, b"GoOrder {}", "message 'GoOrder': generation: Field required"),
        (m.ORDERS, b'GoOrder {"generation":"1"}', "message 'GoOrder': generation: Input should be a valid integer"),
        (m.ORDERS, b'GoOrder {"generation":1.0}', "message 'GoOrder': generation: Input should be a valid integer"),
        (m.ORDERS, b'GoOrder {"generation":1', "message 'GoOrder': Invalid JSON: EOF"),
        (m.ORDERS, b"GoOrder [1]", "message 'GoOrder': Input should be an object"),
        (m.ORDERS, b"\x80\x04GoOrder", "unknown message '\ufffd\\x04GoOrder'; "),
        (
            m.LINK_HELLOS,
            b'LinkHello {"generation":1,"channel":%s}' % CHANNEL_TEXT.replace(b"}", b',"x":1}'),
            "channel.x",
        ),
        (
            m.REPORTS,
            b'StagedReport {"generation":1,"epoch":1,"outputs":[{"sink":"s"}]}',
            "outputs[0].staged: Field req",
        ),
    ],
)
def test_the_unknown_is_named(codec: m.Codec[Any], text: bytes, said: str) -> None:
    with pytest.raises(m.MessageError) as raised:
        codec.decode(text)
    assert said in str(raised.value)


def test_a_load_that_cannot_be_is_rejected() -> None:
    order = m.GenerationOrder(
        "r", 1, 1, 0, frozenset(), (), (), {}, {}, {}, (0, 0),
        held=False, careful=False, load=Load.constant(2.0), began=0.0, limit=None, checkpoint="c",
    )  # fmt: skip
    text = m.ORDERS.encode(order)
    with pytest.raises(m.MessageError, match="message 'GenerationOrder': load: expected at least one spell"):
        m.ORDERS.decode(text.replace(b"[[1.0,2.0]]", b"[]"))


def test_sizes_are_bounded_at_both_ends() -> None:
    codec = m.Codec(30, m.BrokenReport)
    report = m.BrokenReport(1, "no")
    # 'BrokenReport {"generation":1,"reason":"no"}' has 43 bytes
    with pytest.raises(m.MessageError, match="a message of 43 bytes; at most 30 are sent"):
        codec.encode(report)
    with pytest.raises(m.MessageError, match="a message of 43 bytes; at most 30 are sent"):
        codec.decode(m.REPORTS.encode(report))


def test_only_what_its_class_declares_is_sent() -> None:
    with pytest.raises(m.MessageError, match="message 'GoOrder' is not sent here; expected BeatReport, "):
        m.REPORTS.encode(m.GoOrder(1))  # type: ignore[arg-type]
    with pytest.raises(m.MessageError, match=r"message 'GoOrder' cannot be encoded: .*int"):
        m.ORDERS.encode(m.GoOrder("one"))  # type: ignore[arg-type]


def test_half_characters_of_other_peoples_errors_are_replaced() -> None:
    report = m.REPORTS.decode(m.REPORTS.encode(m.BrokenReport(1, "no file a\udc80b")))
    assert report == m.BrokenReport(1, "no file a?b")
    staged = m.StagedReport(1, 1, shown=(("sink", '{"v": "\ud83d"}'),), notes=("\udfff",))
    back = m.REPORTS.decode(m.REPORTS.encode(staged))
    assert isinstance(back, m.StagedReport)
    assert (back.shown, back.notes) == ((("sink", '{"v": "?"}'),), ("?",))
