"""Which options of Kafka's and of databases are secrets, by their names.

A pipeline is written into plans, reports and stores as it is: a secret must not stand in it. It names where the secret
is, with `.env` (a variable of the environment) or `.file` (a path) behind the option, and whoever makes a client looks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "kafka."
"""What options for Kafka's clients begin with, as Spark's own connector has it."""
ENV, FILE = "env", "file"

# the last part of the name says it (sasl.password, sasl.oauthbearer.client.secret), or these whole names do; a path
# (ssl.keystore.location) and the address of a server (sasl.oauthbearer.token.endpoint.url) are none
_SECRET = re.compile(
    r"(^|\.)([^.]*(password|passwd|passphrase|secret|credential)[^.]*|jaas\.config|key\.pem|keystore\.key|access\.token)$"
)


def plain_name(option: str) -> str:
    """As Kafka's clients call it: without the prefix, in small letters as all their names are."""
    return option.lower().removeprefix(PREFIX)


def is_secret(option: str) -> bool:
    return _SECRET.search(plain_name(option)) is not None


def secret_elsewhere(option: str) -> tuple[str, str] | None:
    """The secret that is to be looked up, and in what (`env`, `file`). None: the option is what its name says; clients
    have some of their own that end in `.file`."""
    secret, _, where = plain_name(option).rpartition(".")
    return (secret, where) if where in {ENV, FILE} and is_secret(secret) else None


def check_no_secret(options: Iterable[str], format_of_end: str | None = "kafka") -> None:
    """Raises ValueError where a secret stands among options by name, whatever their letters. The value is not repeated.
    Options of a format that is not known here are looked at where they begin as Kafka's do."""
    for option in options:
        if (format_of_end in {"kafka", "jdbc"} or option.lower().startswith(PREFIX)) and is_secret(option):
            asked = option if format_of_end == "jdbc" else PREFIX + plain_name(option)
            raise ValueError(f"option '{option}' is a secret: say {asked}.{ENV}: VARIABLE or {asked}.{FILE}: PATH")
