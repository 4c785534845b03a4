"""A table of options that hold a secret, and of options that do not: both kinds of mistake are seen here."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.cli import output
from penstock.connectors.connection_settings import with_secrets
from penstock.dataflow.secrets import check_no_secret, redact, remember, secret_elsewhere
from penstock.runs.config import RunConfig
from penstock.runs.description import RunDescription
from penstock.spark.internals.error_messages import first_line

S = "S3CRETxyz"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{S}\n-----END RSA PRIVATE KEY-----"
SECRET = [
    # by name
    ("password", S),
    ("PASSWORD", S),
    ("passwd", S),
    ("db_passwd", S),
    ("pwd", S),
    ("user.pwd", S),
    ("sfPassword", S),
    ("sfToken", S),
    ("sfPrivateKey", S),
    ("pem_private_key", S),
    ("private_key_passphrase", S),
    ("token", S),
    ("accessToken", S),
    ("access_token", S),
    ("auth.token", S),
    ("sasToken", S),
    ("sas", S),
    ("fs.azure.sas.fixed.token", S),
    ("apiKey", S),
    ("api_key", S),
    ("apikey", S),
    ("x-api-key", S),
    ("secret", S),
    ("clientSecret", S),
    ("client_secret", S),
    ("fs.s3a.secret.key", S),
    ("fs.s3a.access.key", S),
    ("fs.s3a.bucket.mine.secret.key", S),
    ("awsSecretKey", S),
    ("aws_secret_access_key", S),
    ("accesskey", S),
    ("fs.azure.account.key.mine.dfs.core.windows.net", S),
    ("fs.azure.account.oauth2.client.secret.mine.dfs.core.windows.net", S),
    ("credentials", S),
    ("credential", S),
    ("es.net.http.auth.pass", S),
    ("spark.cassandra.auth.password", S),
    ("basic.auth.user.info", f"u:{S}"),
    ("kafka.sasl.jaas.config", f'x required username="u" password="{S}";'),
    ("headers.Authorization", f"Bearer {S}"),
    # by value
    ("url", f"jdbc:postgresql://h/db?user=u&password={S}"),
    ("url", f"jdbc:sqlserver://h:1433;databaseName=d;user=u;password={S}"),
    ("url", f"jdbc:sqlserver://h:1433;PWD={S}"),
    ("url", f"jdbc:oracle:thin:scott/{S}@//h:1521/x"),
    ("url", f"jdbc:mysql://u:{S}@h/db"),
    ("connection.uri", f"mongodb://u:{S}@h/db"),
    ("spark.mongodb.connection.uri", f"mongodb+srv://u:{S}@h.example/db?retryWrites=true"),
    ("path", f"s3a://AKIA:{S}@bucket/x"),
    ("endpoint", f"https://:{S}@h"),
    ("redis", f"redis://default:{S}@h:6379/0"),
    ("eventhubs.connectionString", f"Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey={S}="),
    ("conn", f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={S}==;EndpointSuffix=core.windows.net"),
    ("odbc", f"Driver=x;Server=h;Uid=u;Pwd={S};"),
    ("dsn", f"host=h user=u password={S} dbname=d"),
    ("dsn", f"host=h password='{S} with blanks'"),
    ("kafka.sasl.oauthbearer.config", f"clientId=c clientSecret={S}"),
    ("config", json.dumps({"auth": {"client_secret": S}})),
    ("config", f"user: u\npassword: {S}"),
    ("path", f"wasbs://c@a.blob.core.windows.net/x?sv=2022&sig={S}%2Babcdefghijk%3D"),
    ("url", f"https://h/x?access_token={S}"),
    ("url", f"https://h/x?apikey={S}"),
    ("serviceAccount", json.dumps({"private_key": PEM})),
    ("key", PEM),
    ("header", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + S),
    ("id", "AKIAIOSFODNN7EXAMPLE"),
    ("header", f"Authorization: Bearer {S}"),
    ("query", f"create user u; select 1 where password = '{S}'"),
    ("github", "ghp_" + "a1B2" * 9),
]
PLAIN = [
    ("path", "/data/in"),
    ("path", "s3a://bucket/key/token=5/part"),
    ("path", "hdfs://nn:8020/user/me@home/x"),
    ("path", "abfss://container@account.dfs.core.windows.net/x"),
    ("path", "C:/password/x"),
    ("path", "/run/secrets/here"),
    ("subscribe", "passwords,tokens"),
    ("topic", "secret-events"),
    ("subscribePattern", "token.*"),
    ("kafka.bootstrap.servers", "h1:9092,h2:9092"),
    ("tokenizer", "standard"),
    ("tokenizer.pattern", "\\s+"),
    ("maxTokens", "512"),
    ("max_tokens", "512"),
    ("tokens", "3"),
    ("stopToken", "END"),
    ("nextToken", "5"),
    ("separator_token", "|"),
    ("keyspace", "ks"),
    ("key", "id"),
    ("key.column", "id"),
    ("primaryKey", "id"),
    ("partitionKey", "id"),
    ("keyField", "id"),
    ("hoodie.datasource.write.recordkey.field", "id"),
    ("table", "secrets"),
    ("dbtable", "public.passwords"),
    ("dbtable", "(select a.id from a join b on a.token = b.token) t"),
    ("query", "select password, token from users where token = ? and password = :word"),
    ("query", "select * from t where name = 'x'"),
    ("url", "jdbc:postgresql://h:5432/db?user=u&ssl=true"),
    ("url", "jdbc:sqlite:/tmp/x.db"),
    ("url", "jdbc:sqlserver://h:1433;databaseName=d;encrypt=true"),
    ("url", "https://h:443/a:b@c"),
    ("url", "mongodb://h1:27017,h2:27017/db?replicaSet=rs"),
    ("url", "ssh://git@host/x"),
    ("url", "jdbc:postgresql://h/db?password=${DB_WORD}"),
    ("user", "me"),
    ("sfUser", "me"),
    ("username", "pass"),
    ("compass", "north"),
    ("bypass", "true"),
    ("secretary", "Ann"),
    ("sassMode", "x"),
    ("credentialsFile", "/etc/gcp.json"),
    ("credentials.provider", "com.amazonaws.auth.InstanceProfile"),
    ("fs.s3a.aws.credentials.provider", "x.Y"),
    ("secretName", "prod/db"),
    ("secret.name", "prod/db"),
    ("passwordColumn", "pw"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "https://idp/token"),
    ("kafka.ssl.keystore.location", "/etc/k.jks"),
    ("kafka.ssl.ca.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"),
    ("kafka.sasl.username", "me"),
    ("schema", "token string, password string"),
    ("avroSchema", json.dumps({"type": "record", "fields": [{"name": "password", "type": "string"}]})),
    ("header", "true"),
    ("sep", ";"),
    ("delimiter", "="),
    ("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss"),
    ("dateFormat", "dd:MM:yyyy"),
    ("description", "Basic authentication is off"),
    ("startingOffsets", '{"tokens":{"0":17}}'),
    ("accessKeyId.column", "x"),
    ("maxFilesPerTrigger", "10"),
    ("mode", "PERMISSIVE"),
    ("columnNameOfCorruptRecord", "_bad"),
    ("password.env", "DB_WORD"),
    ("password.file", "/run/secrets/db"),
    ("connection.uri.env", "MONGO"),
]


@pytest.mark.parametrize(("option", "value"), SECRET)
def test_a_secret_is_refused_with_the_remedy_and_not_repeated(option: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"secret.*: say .+\.env: VARIABLE or .+\.file: PATH$") as refused:
        check_no_secret({"first": "1", option: value})
    assert S not in str(refused.value)
    # the remedy works, whatever the format
    elsewhere = secret_elsewhere(f"{option}.env")
    assert elsewhere == (option, "env")
    check_no_secret({f"{option}.env": "NAME"})


@pytest.mark.parametrize(("option", "value"), PLAIN)
def test_an_ordinary_option_is_no_secret(option: str, value: str) -> None:
    check_no_secret({option: value})


@pytest.mark.parametrize("key", ["files", "parquet"])
def test_paths_of_files_hold_no_secret_either(key: str) -> None:
    place = f"s3a://KEY:{S}@bucket/x.json"
    begun = penstock.pipeline("p")
    make = {
        "files": lambda: begun.source("s", files=place).sink("k").build(),
        "parquet": lambda: begun.source("s").sink("k", parquet=place).build(),
    }
    with pytest.raises(BadInputError, match=rf"{key} holds a secret \(a password in a URL\)") as refused:
        make[key]()
    assert S not in str(refused.value)


def test_no_plan_is_made_of_a_pipeline_with_a_secret(tmp_path: Path) -> None:
    """The command line, as a user would: nothing is written, and the complaint does not repeat it."""
    file = tmp_path / "p.yaml"
    uri = f"mongodb://u:{S}@h/db"
    file.write_text(
        "name: x\noperators:\n  s: {kind: source, format: mongodb, options: {connection.uri: 'URI'}}\n"
        "  a: {model: pi}\n  o: {kind: sink}\nstreams: [{from: s, to: a}, {from: a, to: o}]\n".replace("URI", uri)
    )
    words = [sys.executable, "-m", "penstock", "plan", str(file), "--rate", "5", "-o", str(tmp_path / "plan.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert S not in done.stdout + done.stderr
    assert "say connection.uri.env: VARIABLE" in done.stderr
    assert not (tmp_path / "plan.json").exists()
    file.write_text(file.read_text().replace("connection.uri:", "connection.uri.env:").replace(uri, "MONGO_URI"))
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "MONGO_URI": uri})
    assert done.returncode == 0, done.stderr
    assert "MONGO_URI" in (tmp_path / "plan.json").read_text()
    assert S not in (tmp_path / "plan.json").read_text()


def test_a_wrong_type_of_option_does_not_repeat_its_value() -> None:
    with pytest.raises(BadInputError) as refused:
        penstock.pipeline("p").source("s", format="x", options={"password": [S]}).sink("k").build()  # type: ignore[dict-item]
    assert S not in str(refused.value)


def test_resolved_secrets_are_hidden_in_messages_and_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.cli.main import log_on_stderr

    monkeypatch.setenv("MONGO", "mongodb://u:hush-hush-1@h/db")
    monkeypatch.setenv("WORD", 'quo"ted-word')
    options = {"connection.uri.env": "MONGO", "sfPassword.env": "WORD", "collection": "c"}
    resolved = with_secrets(options, "source 's'")
    assert resolved == {
        "connection.uri": "mongodb://u:hush-hush-1@h/db",
        "sfPassword": 'quo"ted-word',
        "collection": "c",
    }
    said = first_line(ValueError('[X] cannot reach mongodb://u:hush-hush-1@h/db with quo"ted-word'))
    assert said == "cannot reach *** with ***"
    output.complain('failed: quo"ted-word and postgres://a:other-word@h')
    with log_on_stderr("info", None):
        logging.getLogger("penstock.x").info("options %s", resolved)
    shown = capsys.readouterr().err
    for secret in ("hush-hush-1", "ted-word", "other-word"):
        assert secret not in shown
    assert "'collection': 'c'" in shown


def test_short_values_and_ordinary_text_stay_as_they_are() -> None:
    remember("ab")
    remember("")
    assert redact("about a cab, me@home: x") == "about a cab, me@home: x"


def test_secret_settings_of_spark_are_not_written_into_the_folder_of_a_run() -> None:
    settings = {"spark.executor.memory": "1g", "spark.hadoop.fs.s3a.secret.key": S, "spark.x": f"redis://u:{S}@h"}
    described = RunDescription(run="r", pipeline="p", config=RunConfig(settings=settings))
    written = described.model_dump_json()
    assert S not in written
    assert json.loads(written)["config"]["settings"] == {"spark.executor.memory": "1g"}
