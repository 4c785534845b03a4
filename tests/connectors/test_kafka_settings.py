"""How a broker is reached that asks who comes: for Java's client, and for dead letters."""

from __future__ import annotations

import pytest

from penstock.base.errors import BadInputError
from penstock.connectors.connection_settings import client_settings, java_options
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.fused.sinks.topic_writer import letter_topic

SERVERS = {"kafka.bootstrap.servers": "h:9093"}
LOGIN = {**SERVERS, "kafka.sasl.username": "me", "kafka.sasl.password.env": "KAFKA_PASSWORD"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (SERVERS, SERVERS),
        (
            {**LOGIN, "kafka.sasl.mechanism": "PLAIN", "kafka.security.protocol": "SASL_SSL"},
            {
                **SERVERS,
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.jaas.config": rf'{PLAIN} required username="me" password="hu\"s\\h";',
            },
        ),
        (
            {**LOGIN, "kafka.sasl.mechanisms": "SCRAM-SHA-512"},
            {
                **SERVERS,
                "kafka.sasl.mechanism": "SCRAM-SHA-512",
                "kafka.sasl.jaas.config": rf'{SCRAM} required username="me" password="hu\"s\\h";',
            },
        ),
        (
            {**SERVERS, "kafka.ssl.ca.location": "/ca.pem"},
            {**SERVERS, "kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"},
        ),
    ],
)
def test_what_javas_client_is_told(
    options: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", 'hu"s\\h')
    assert java_options(options, "source 's'") == expected


def test_a_login_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    with pytest.raises(BadInputError, match="expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, found 'GSSAPI'"):
        java_options({**LOGIN, "kafka.sasl.mechanism": "GSSAPI"}, "source 's'")


@pytest.mark.parametrize("option", ["kafka.enable.idempotence", "kafka.Enable.Partition.EOF", "kafka.group.id"])
def test_what_must_be_ours_is_refused(option: str) -> None:
    with pytest.raises(BadInputError, match=f"sink 's': option '{option}' is set by Penstock; leave it out"):
        client_settings({**SERVERS, option: "true"}, "sink 's'")


def test_javas_client_may_be_told_more() -> None:
    options = {**SERVERS, "kafka.enable.idempotence": "false"}
    assert java_options(options, "sink 's'") == options


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("kafka:h:9093/letters", {**LOGIN, "kafka.security.protocol": "SASL_SSL"}),
        ("kafka:other:9092/letters", {"kafka.bootstrap.servers": "other:9092"}),
        ("log:/data/letters", {"path": "/data"}),
    ],
)
def test_dead_letters_go_the_way_the_pipeline_goes(place: str, options: dict[str, str]) -> None:
    reads = {**LOGIN, "kafka.security.protocol": "SASL_SSL", "subscribe": "in", "groupId": "g"}
    pipeline = Pipeline.of(
        "p",
        [Operator(name="s", kind=Kind.SOURCE, format="kafka", options=reads), Operator(name="o", kind=Kind.SINK)],
        [Stream(sender="s", receiver="o")],
    )
    address, topic = letter_topic(pipeline, place)
    assert (dict(address.options), topic) == (options, "letters")
