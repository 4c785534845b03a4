"""The secret of a cluster: read from a file, handed to Spark in a file, never on a command line.

Java's command line can be read by every user of a machine, and what a session is configured with stands there. What
is in a file of properties does not.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.files import private_folder, read_text, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SHORTEST_SECRET = 16

DEFAULTS = "spark-defaults.conf"
_FILTER = "org.apache.spark.ui.JWSFilter"
"""A filter of Spark's own for its web pages."""
SUBMIT_ARGUMENTS, PYSPARK_SHELL = "PYSPARK_SUBMIT_ARGS", "pyspark-shell"


def read_secret(file: Path) -> str:
    secret = read_text(file).strip()
    if len(secret) < SHORTEST_SECRET:
        raise BadInputError(f"{file}: expected a secret of at least {SHORTEST_SECRET} characters")
    if not re.fullmatch(r"[!-~]+", secret):
        raise BadInputError(f"{file}: expected a secret of letters, digits and signs on one line")
    return secret


def secret_settings(secret: str | None) -> dict[str, str]:
    """What Master, Workers and sessions of a cluster must all be told: for files of mode 0600 only."""
    if secret is None:
        return {}
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
    }


def web_key(secret: str) -> bytes:
    """The key that signs requests for web pages: who has it does not have the secret."""
    return hmac.digest(secret.encode(), b"penstock web pages", "sha256")


def web_token(secret: str) -> str:
    """Opens the web pages of Workers: `Authorization: Bearer TOKEN`."""
    signed = ".".join(_base64url(part) for part in (b'{"alg":"HS256","typ":"JWT"}', b"{}"))
    return f"{signed}.{_base64url(hmac.digest(web_key(secret), signed.encode(), 'sha256'))}"


def web_settings(secret: str | None) -> dict[str, str]:
    """Web pages that ask for a token: for files of mode 0600 only."""
    if secret is None:
        return {}
    return {"spark.ui.filters": _FILTER, f"spark.{_FILTER}.param.secretKey": _base64url(web_key(secret))}


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def properties_text(settings: Mapping[str, str]) -> str:
    """A Java properties file; backslashes would escape, so they are doubled."""
    return "".join(f"{key}={value}\n" for key, value in settings.items()).replace("\\", "\\\\")


@contextmanager
def settings_from_file(settings: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Spark that is started inside the block reads these settings from a file in `folder`, which goes with the block.

    The user's own defaults stay in force.
    """
    file, before = private_folder(folder) / "own.properties", os.environ.get(SUBMIT_ARGUMENTS)
    write_text(file, properties_text(settings))
    given = (before or PYSPARK_SHELL).strip().removesuffix(PYSPARK_SHELL)
    os.environ[SUBMIT_ARGUMENTS] = (
        f"{given} --properties-file {shlex.quote(str(file))} --load-spark-defaults {PYSPARK_SHELL}".strip()
    )
    try:
        yield
    finally:
        if before is None:
            del os.environ[SUBMIT_ARGUMENTS]
        else:
            os.environ[SUBMIT_ARGUMENTS] = before
        file.unlink()
        folder.rmdir()
