"""Settings to reach Kafka, named as for Spark's own source (`kafka.bootstrap.servers`, ...), for Java and other
clients.

Secrets stand in the environment or in a file: `kafka.sasl.password.env: NAME` or `kafka.sasl.password.file: PATH`. They
are looked up when a client is made, so that neither a plan, a report nor a command line holds them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.files import read_text
from penstock.dataflow.formats import CLIENT_PREFIX
from penstock.dataflow.secrets import FILE, check_no_secret, plain_name, remember, secret_elsewhere

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


# Secrets that a pipeline names only by their place, looked up when a client is made.


def looked_up(option: str, place: str, who: str) -> str:
    """`option` ends in `.env` or `.file`, and `place` is the variable or the path."""
    if option.lower().endswith(f".{FILE}"):
        return remember(read_text(Path(place)).strip())
    value = os.environ.get(place)
    if value is None:
        raise BadInputError(f"{who}: option {option}: the environment has no {place}")
    return remember(value)


def with_secrets(options: Mapping[str, str], who: str, form: str | None = None) -> dict[str, str]:
    """Return the options of a format other than Kafka, each secret under its own name. The driver calls it when
    a run starts."""
    filled: dict[str, str] = {}
    for option, value in options.items():
        elsewhere = secret_elsewhere(option, form)
        filled.update({option: value} if elsewhere is None else {elsewhere[0]: looked_up(option, value, who)})
    return filled


KAFKA = "kafka"
SERVERS = "bootstrap.servers"
_BELONG_ELSEWHERE = ("group.id", "enable.auto.commit", "isolation.level", "transactional.id", "auto.offset.reset")
_OF_OUR_CLIENTS = ("enable.idempotence", "enable.auto.offset.store", "enable.partition.eof")
"""Settings of our own clients: without them messages would be lost or doubled."""


def client_settings(options: Mapping[str, str], who: str = "kafka") -> dict[str, str]:
    """Return the settings of a client of librdkafka: the options that begin with `kafka.`, without that prefix, secrets
    filled in."""
    return _settings(options, who, (*_BELONG_ELSEWHERE, *_OF_OUR_CLIENTS))


def _settings(options: Mapping[str, str], who: str, refused: Collection[str]) -> dict[str, str]:
    mine = {option: value for option, value in options.items() if is_for_clients(option)}
    try:
        check_no_secret(mine, KAFKA)
    except ValueError as error:
        raise BadInputError(f"{who}: {error}") from error
    settings: dict[str, str] = {}
    for option, value in mine.items():
        name = plain_name(option)
        if name in refused:
            raise BadInputError(f"{who}: option '{option}' is set by Penstock; leave it out")
        elsewhere = secret_elsewhere(option, KAFKA)
        if elsewhere is None:
            settings[name] = value
        else:
            settings[plain_name(elsewhere[0])] = looked_up(option, value, who)
    if not settings.get(SERVERS):
        raise BadInputError(f"{who}: expected the option kafka.bootstrap.servers: HOST:PORT")
    return settings


def is_for_clients(option: str) -> bool:
    """Spark's options are the same in small and capital letters, and so are these."""
    return option.lower().startswith(CLIENT_PREFIX)


def java_options(options: Mapping[str, str], who: str) -> dict[str, str]:
    """The same for Spark's own connector, whose client in Java has other names for some: a user and a password are one
    `sasl.jaas.config`, and authorities are a truststore."""
    settings = _settings(options, who, _BELONG_ELSEWHERE)
    if "sasl.mechanisms" in settings:
        settings["sasl.mechanism"] = settings.pop("sasl.mechanisms")
    if "sasl.username" in settings:
        login = settings.pop("sasl.username"), settings.pop("sasl.password", "")
        settings[JAAS] = _jaas(settings.get("sasl.mechanism", ""), *login, who)
    if "ssl.ca.location" in settings:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": settings.pop("ssl.ca.location")}
    return {f"{CLIENT_PREFIX}{key}": value for key, value in settings.items()}


JAAS = "sasl.jaas.config"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def _jaas(mechanism: str, user: str, password: str, who: str) -> str:
    """As Java reads it: `MODULE required username="..." password="...";`, quotes and backslashes behind a backslash."""
    if mechanism not in _LOGIN_MODULES:
        known = ", ".join(_LOGIN_MODULES)
        raise BadInputError(f"{who}: option kafka.sasl.mechanism: expected one of {known}, found '{mechanism}'")
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password)]
    return f'{_LOGIN_MODULES[mechanism]} required username="{quoted[0]}" password="{quoted[1]}";'
