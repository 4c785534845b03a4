"""`produce`, `broker` and `run` between topics, from the shell; nothing here starts a broker or Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from outcome import Penstock

import penstock as penstock_in_python
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.dataflow.formats import reading_of, writing_of
from penstock.inputs.finders import RunnableLike, runnable


def test_produce_by_options_and_by_a_file(penstock: Penstock, tmp_path: Path) -> None:
    there = f"log:{tmp_path / 'log'}/t"
    done = penstock(
        "produce", "--to", there, "--data", "readings", "--rate", 1000, "--messages", 50, "--partitions", 2, "--json"
    )
    said = json.loads(done.out)
    assert said["messages"] == 50
    assert done.code == (0 if said["kept"] else 1)  # a machine with much else to do may be late
    spec = tmp_path / "more.yaml"
    spec.write_text(f"to: {there}\ndata: readings\nrate: 1000\nmessages: 10\n")
    # what is said in the shell counts
    assert penstock("dev", "produce", spec, "--messages", 20).out.startswith("20 messages in ")
    assert sum(span.messages for span in EmbeddedLog(tmp_path / "log").spans("t").values()) == 70


def test_a_rate_that_is_not_kept_is_exit_code_1(penstock: Penstock, tmp_path: Path) -> None:
    there = f"log:{tmp_path / 'log'}/t"
    done = penstock(
        "dev", "produce", "--to", there, "--data", "tweets", "--rate", 1e7, "--seconds", 0.2, "--partitions", 1
    )
    assert done.code == 1
    assert "was not kept" in done.out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            (
                "dev",
                "produce",
            ),
            "expected a file, or --to and --rate",
        ),
        (("dev", "produce", "--to", "kafka:127.0.0.1:1/t", "--data", "tweets", "--rate", "1"), "Kafka at 127.0.0.1:1"),
        (("dev", "produce", "--to", "log:l/t", "--data", "tweets", "--rate", "1"), "--partitions N) makes it"),
        (("dev", "produce", "none.yaml"), "none.yaml"),
        (("run", "page-load", "--from", "log:l/events"), "no topic 'events'"),
        (("run", "page-load", "--from", "files:l"), "expected kafka:HOST:PORT/TOPIC or log:FOLDER/TOPIC"),
        (("run", "page-load", "--to", "events", "--rate", "5"), "expected kafka:HOST:PORT/TOPIC or log:FOLDER/TOPIC"),
        (("run", "page-load", "--to", "kafka:127.0.0.1:1/t", "--rate", "5"), "Kafka at 127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_one_line(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("penstock.connectors.kafka_log.ANSWER_SECONDS", 1.0)
    done = penstock(*words)
    assert done.code in {1, 2}
    assert complaint in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("planned", [False, True])
def test_run_takes_topics_instead_of_the_ends_of_a_pipeline_or_plan(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: bool
) -> None:
    """What the verb is given to run, without running it."""
    started = []

    def run(pipeline: RunnableLike, rate: str | None, **options: object) -> None:
        started.append(pipeline)
        raise penstock_in_python.BadInputError("far enough")

    monkeypatch.setattr("penstock.api.runs.run", run)
    log = EmbeddedLog(tmp_path / "log")
    log.create("events", 3)
    subject = tmp_path / "plan.json" if planned else "processing"
    if planned:
        assert penstock("plan", "processing", "--rate", 5, "-o", subject).code == 0
    there = f"log:{tmp_path / 'log'}"
    assert "far enough" in penstock("run", subject, "--from", f"{there}/events", "--to", f"{there}/answers").err
    pipeline, plan = runnable(started[0])
    assert (plan is not None) == planned
    (source,) = pipeline.sources
    assert reading_of(pipeline.operators[source]).options["subscribe"] == "events"
    assert writing_of(pipeline.operators["sink2"]).options["topic"] == "answers-sink2"
    # those that are not there are made
    assert log.topics() == {"answers-sink1": 1, "answers-sink2": 1, "events": 3}


def test_an_end_with_code_of_its_own_is_no_topic() -> None:
    built = penstock_in_python.pipeline("p").source("made", frame=lambda session: None)
    pipeline = built.then("same", logic=dict).sink("end").build()
    with pytest.raises(penstock_in_python.BadInputError, match="source 'made' has code of its own"):
        penstock_in_python.reading_from(pipeline, "log:l/t")


def test_the_status_of_a_broker_counts_offsets(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EmbeddedLog(tmp_path)
    log.create("t", 2)
    producer = log.producer()
    producer.send("t", [b"1", b"2"])
    producer.close()
    running = SimpleNamespace(address=f"log:{tmp_path}", servers="h:1")
    monkeypatch.setattr("penstock.api.clusters.running_broker", lambda folder: running)
    assert json.loads(penstock("dev", "broker", "status", "--json").out)["topics"] == {
        "t": {"partitions": 2, "offsets": 2}
    }
    assert "offsets" in penstock("dev", "broker", "status").out


def test_no_broker(penstock: Penstock, tmp_path: Path) -> None:
    assert penstock("dev", "broker", "status", "--folder", tmp_path).code == 1
    assert penstock("dev", "broker", "down", "--folder", tmp_path).out == "no broker was running\n"
