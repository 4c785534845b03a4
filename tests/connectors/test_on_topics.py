from __future__ import annotations

import penstock
from penstock.connectors.topic_address import reading_from, writing_to
from penstock.dataflow.formats import reading_of, writing_of


def test_an_application_reads_and_writes_topics_instead() -> None:
    pipeline = reading_from(penstock.find_pipeline("processing"), "kafka:h:1/events")
    (source,) = pipeline.sources
    reading = reading_of(pipeline.operators[source])
    assert (reading.format, dict(reading.options)) == (
        "kafka",
        {"kafka.bootstrap.servers": "h:1", "subscribe": "events"},
    )
    there = writing_to(pipeline, "log:/data/answers")
    # two sinks, so two topics
    assert [writing_of(there.operators[sink]).options["topic"] for sink in ("sink1", "sink2")] == [
        "answers-sink1",
        "answers-sink2",
    ]
    assert there.streams == pipeline.streams
    one = writing_to(penstock.find_pipeline("page-load"), "log:/data/answers")
    assert writing_of(one.operators["sink"]).options == {"path": "/data", "topic": "answers"}
