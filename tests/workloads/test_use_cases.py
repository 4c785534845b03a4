"""The priority thesis' pipelines without Spark: lines that are malformed, options, and decisions on batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock
from penstock.base.clock import thread_cpu_seconds
from penstock.engines.placed.bundle.keyed_segment import KeyedCode, sample_groups
from penstock.inputs.finders import find_pipeline, logic_of
from penstock.runtime.schemas import rows_to_columns
from penstock.workloads.applications import use_cases
from penstock.workloads.applications.messages import BATCH_LENGTH, EVENT_SHARE, GATEWAYS, batch_reading, is_event_batch

GOOD = b"2026-01-01T00:00:00.000+00:00,s1,50.5,device0;3;80"
MALFORMED = {
    "too few fields": b"2026-01-01T00:00:00,s1,50.5",
    "too many fields": GOOD + b",more",
    "no time": GOOD.replace(b"2026-01-01T00:00:00.000+00:00", b"yesterday"),
    "no source": GOOD.replace(b"s1", b""),
    "no number": GOOD.replace(b"50.5", b"warm"),
    "not finite": GOOD.replace(b"50.5", b"nan"),
    "no batch": GOOD.replace(b"device0;3;80", b"device0"),
    "no length": GOOD.replace(b";80", b";0"),
    "not text": b"\xff\xfe,s1,50.5,device0;3;80",
}


def test_a_line_has_a_reading_and_its_batch() -> None:
    row = use_cases.parse_reading({"value": GOOD})
    assert row == {"ts": 1767225600.0, "source": "s1", "batch": 3, "length": 80, "reading": 50.5}
    assert use_cases.parse_reading({"value": GOOD.decode()}) == row


@pytest.mark.parametrize("line", MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_line_is_refused(line: bytes) -> None:
    # ValueError of a row's code makes it a dead letter
    with pytest.raises(ValueError, match=r".+"):
        use_cases.parse_reading({"value": line})


def test_a_feed_is_counted() -> None:
    row = use_cases.parse_feed({"value": b"2026-01-01T00:00:00+00:00,user7,three little words,en"})
    assert row == {"ts": 1767225600.0, "user": "user7", "content": "three little words"}
    assert use_cases.count_in(0.0)(row)["words"] == 3


def test_the_service_time_is_cpu() -> None:
    before = thread_cpu_seconds()
    use_cases.use_cpu(0.05)
    assert 0.05 <= thread_cpu_seconds() - before < 0.2


def test_the_service_time_is_an_option() -> None:
    usual, other = find_pipeline("event-tp"), find_pipeline("event-tp:service=0.02")
    assert other.name == "event-tp-0.02"
    times = [logic_of(pipeline)["compare"].function.keywords["seconds"] for pipeline in (usual, other)]  # type: ignore[attr-defined]
    assert times == [use_cases.EVENT_SECONDS, 0.02]
    assert [logic_of(find_pipeline(name))["count"].function.keywords["seconds"] for name in ("tp1", "tp2")] == [  # type: ignore[attr-defined]
        use_cases.COUNT_SECONDS,
        use_cases.COUNT_SECONDS / 2,
    ]
    # a model is that of one service time
    with pytest.raises(penstock.BadInputError, match="was not measured"):
        penstock.plan(other, 5)
    for wrong in ("event-tp:service=-1", "event-tp:service=slow", "event-tp:bound=cpu"):
        with pytest.raises(penstock.BadInputError):
            find_pipeline(wrong)


def test_every_complete_batch_is_decided_once() -> None:
    batches = 6
    pipeline = find_pipeline("event-tp:service=0")
    code, aggregate = logic_of(pipeline), pipeline.operators["detect"].aggregate
    assert aggregate is not None
    parsed = [use_cases.parse_reading({"value": n}) for n in range(GATEWAYS * batches * BATCH_LENGTH - 1)]
    compared = [code["compare"](row) for row in parsed]
    keyed = KeyedCode("detect", aggregate)
    rows, misfits = rows_to_columns(compared, keyed.takes)
    assert not misfits
    groups = sample_groups(keyed, pa.Table.from_batches([rows])).to_pylist()
    decided = [row for group in groups if (row := code["dispatch"](group)) is not None]
    # the last gateway's last batch lacks one reading
    assert len(decided) == GATEWAYS * batches - 1
    assert {(row["source"], row["batch"]) for row in decided if row["event"]} == {
        (f"s{gateway}", batch)
        for gateway in range(GATEWAYS)
        for batch in range(batches)
        if is_event_batch(batch, EVENT_SHARE) and (gateway, batch) != (GATEWAYS - 1, batches - 1)
    }


def test_lines_are_those_of_the_batches() -> None:
    for number in (0, 79, 80, 250):
        reading, row = batch_reading(number, 3, 80, 0.5), use_cases.parse_reading({"value": number * GATEWAYS + 3})
        assert {name: row[name] for name in ("source", "batch", "reading")} == {
            name: reading[name] for name in ("source", "batch", "reading")
        }
