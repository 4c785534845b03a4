from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.connectors.connection_settings import client_settings, with_secrets
from penstock.dataflow.secrets import is_secret, secret_elsewhere
from penstock.workloads.producer import producer_spec

SECRETS = (
    "sasl.password",
    "SASL.Password",
    "sasl.jaas.config",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
)
NO_SECRETS = (
    "bootstrap.servers",
    "sasl.username",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.keystore.location",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.kerberos.keytab",
    "compression.type",
)


def test_secrets_are_known_by_their_names() -> None:
    assert [name for name in SECRETS if not is_secret(f"kafka.{name}")] == []
    assert [name for name in NO_SECRETS if is_secret(f"kafka.{name}")] == []


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(("kind", "topic"), [("source", "subscribe"), ("sink", "topic")])
def test_a_secret_in_plain_reaches_no_plan(tmp_path: Path, name: str, kind: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", topic: "t", f"kafka.{name}": "hush"}
    end = {"kind": kind, "format": "kafka", "options": options}
    other = {"kind": "sink" if kind == "source" else "source"}
    stream = {"from": "end", "to": "other"} if kind == "source" else {"from": "other", "to": "end"}
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"name": "p", "operators": {"end": end, "other": other}, "streams": [stream]}))
    with pytest.raises(BadInputError) as refused:
        penstock.plan(file, 10)
    said = str(refused.value)
    assert f"{kind} 'end': option 'kafka.{name}' is a secret: say kafka.{name.lower()}.env: VARIABLE or" in said
    assert "hush" not in said
    assert "\n" not in said


@pytest.mark.parametrize("format_", ["delta", "mongodb", "parquet", "somebodys.own.Format"])
def test_options_of_every_format_are_looked_at(format_: str) -> None:
    def built(**options: str) -> object:
        return penstock.pipeline("p").source("s", format=format_, options=options).sink("k").build()

    assert built(**{"password.env": "WORD", "connection.uri.file": "/run/uri"})
    with pytest.raises(BadInputError, match=r"'password' is a secret: say password\.env: VARIABLE or"):
        built(password="table's own")  # noqa: S106 - that is the point
    with pytest.raises(BadInputError, match=r"kafka\.sasl\.password\.file: PATH"):
        built(**{"Kafka.Sasl.Password": "hush"})


def test_the_password_of_a_database_is_said_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(**options: str) -> object:
        return penstock.pipeline("p").source("s").sink("k", format="jdbc", options=options).build()

    with pytest.raises(BadInputError, match=r"'Password' is a secret: say Password\.env: VARIABLE or Password\.file"):
        built(Password="hush")  # noqa: S106 - that is the point
    options = {"url": "jdbc:x:y", "user": "me", "password.env": "DB_WORD"}
    assert built(**options)
    with pytest.raises(BadInputError, match=r"^sink 'k': option password\.env: the environment has no DB_WORD$"):
        with_secrets(options, "sink 'k'")
    monkeypatch.setenv("DB_WORD", "hush")
    assert with_secrets(options, "sink 'k'") == {"url": "jdbc:x:y", "user": "me", "password": "hush"}
    (tmp_path / "word").write_text("quiet\n")
    assert with_secrets({"password.file": str(tmp_path / "word")}, "sink 'k'") == {"password": "quiet"}


def test_a_producer_is_told_no_secret_in_plain_either() -> None:
    given = {"to": "kafka:h:1/t", "data": "tweets", "rate": 1, "options": {"kafka.ssl.key.password": "hush"}}
    with pytest.raises(BadInputError, match=r"say kafka\.ssl\.key\.password\.env"):
        producer_spec(given)


@pytest.mark.parametrize(
    ("option", "elsewhere"),
    [
        ("kafka.sasl.password.env", ("kafka.sasl.password", "env")),
        ("kafka.SASL.password.file", ("kafka.SASL.password", "file")),
        ("kafka.ssl.keystore.key.file", ("kafka.ssl.keystore.key", "file")),
        ("kafka.sasl.oauthbearer.config.file", ("kafka.sasl.oauthbearer.config", "file")),
        ("sfPassword.env", ("sfPassword", "env")),
        ("connection.uri.file", ("connection.uri", "file")),
        ("url.env", ("url", "env")),
        ("path.env", ("path", "env")),
        # Hudi's own
        ("hoodie.streamer.schemaprovider.source.schema.file", None),
        # librdkafka's own
        ("kafka.sasl.oauthbearer.assertion.private.key.file", None),
        ("kafka.sasl.oauthbearer.assertion.file", None),
        ("kafka.sasl.password", None),
    ],
)
def test_what_ends_in_file_or_env_is_looked_up_only_for_secrets(option: str, elsewhere: tuple[str, str] | None) -> None:
    form = "kafka" if option.startswith("kafka.") else None
    assert secret_elsewhere(option, form) == elsewhere


def test_clients_get_secrets_filled_in_and_their_own_files_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "word").write_text("quiet\n")
    monkeypatch.setenv("KAFKA_WORD", "hush")
    options = {
        "subscribe": "t",
        "kafka.bootstrap.servers": "h:1",
        "Kafka.SASL.password.env": "KAFKA_WORD",
        "kafka.ssl.key.password.file": str(tmp_path / "word"),
        "kafka.sasl.oauthbearer.assertion.file": "/nowhere/a.jwt",
    }
    assert client_settings(options) == {
        "bootstrap.servers": "h:1",
        "sasl.password": "hush",
        "ssl.key.password": "quiet",
        "sasl.oauthbearer.assertion.file": "/nowhere/a.jwt",
    }
