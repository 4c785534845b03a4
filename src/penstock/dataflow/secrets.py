"""Secrets in options of sources and sinks, recognised by the option's name or the form of its value.

A pipeline is written into plans, reports and stores as it is, so it must not contain a secret. It names the place of
the secret with `.env` (a variable of the environment) or `.file` (a path) after the option; the driver looks it up when
the run starts. This holds for every format.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.dataflow.formats import CLIENT_PREFIX, find_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


ENV, FILE = "env", "file"

_ACCOUNT = re.compile(r"\.[\w-]+\.\w+\.core\.[\w.]+$")
"""Azure puts the account after the option: fs.azure.account.key.ACCOUNT.dfs.core.windows.net."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORD = re.compile(
    r"password|passwd|passphrase|passcode|credential|secret(?!ar)|apikey|accesskey(?!id)|privatekey|accountkey|"
    r"sharedkey|authtoken|accesstoken|^pwd$|^pass$|^sas$|^authorization$"
)
_SECRET_ENDINGS = (
    *("api key", "access key", "secret key", "private key", "account key", "shared key", "storage key", "master key"),
    *("signing key", "encryption key", "keystore key", "key pem", "jaas config", "auth user info"),
)
_HARMLESS_ENDINGS = frozenset(
    {"alias", "algorithm", "class", "column", "count", "delimiter", "enabled", "encoding", "endpoint", "expiration"}
    | {"expiry", "field", "file", "format", "id", "index", "interval", "iterations", "length", "location", "manager"}
    | {"mode", "ms", "name", "names", "path", "policy", "provider", "refresh", "scope", "seconds", "separator", "size"}
    | {"store", "timeout", "ttl", "type", "uri", "url", "version"}
)
"""Endings of names that only describe a secret: credentialsFile, secret.name, token.endpoint.url."""
_TOKENS_OF_TEXT = frozenset(
    {"begin", "comment", "continuation", "end", "mask", "max", "min", "next", "num", "pad", "page", "separator"}
    | {"start", "stop", "sync", "unknown"}
)
"""Words before `token` that make it no secret."""
_FROM_FILE = frozenset({"url", "uri", "string", "config", "json", "dsn"})
"""Options that may hold a secret have such a last word; with `.file` they are read from a file."""


def plain_name(option: str) -> str:
    """As Kafka's clients call it: without the prefix, in small letters as all their names are."""
    return option.lower().removeprefix(CLIENT_PREFIX)


def is_secret(option: str, form: str | None = None) -> bool:
    """Return whether the value of an option is a secret, by its name or by the declaration of its format."""
    if form is not None and option.lower() in find_format(form).secret_options:
        return True
    name = _ACCOUNT.sub("", option)
    parts = [[word.lower() for word in _WORD.findall(part)] for part in name.split(".")]
    words = [word for part in parts for word in part]
    if not words or words[-1] in _HARMLESS_ENDINGS:
        return False
    if any(_SECRET_WORD.search(word) for word in [*parts[-1], "".join(parts[-1][-2:])]):
        return True
    if words[-1] == "token":
        return len(words) == 1 or words[-2] not in _TOKENS_OF_TEXT
    return " ".join(words).endswith(_SECRET_ENDINGS)


_PLACEHOLDER = re.compile(
    r"^(\$\{?\w[\w.:-]*\}?|\{\{.*\}\}|<[^>]*>|\*+|\?|%s|:\w+|true|false|null|none|string|)$", re.IGNORECASE
)
"""Not a secret, but a word in place of one."""
_IN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s@:]*:([^/?#\s@]+)@|jdbc:oracle:\w+:[^/@\s:]+/([^@\s]+)@")
_PARAMETER = re.compile(
    r"""(?:^|[?&;,\s({])["']?([A-Za-z][\w.-]*(?:\ [A-Za-z]+)?)["']?\s*[=:]\s*(?=("[^"]*"|'[^']*'|[^\s;&,)}]+))"""
)
_SQL = re.compile(r"\b(select|insert|update|delete|merge|call)\b", re.IGNORECASE)
_LOOKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a signed token", re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    ("a key of AWS", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a signature", re.compile(r"[?&;]sig=[\w%+/=-]{16,}", re.IGNORECASE)),
    (
        "an API key",
        re.compile(r"\b(?:gh[pousr]_\w{30,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{35}|dapi[0-9a-f]{32}|sk_live_\w{16,})"),
    ),
    ("a login", re.compile(r"authorization\W{1,4}(?:bearer|basic)\s+[\w+/=.-]{4,}", re.IGNORECASE)),
)


def secret_in(value: str) -> str | None:
    """Return in a few words which secret a value holds, without repeating it; None if it holds none."""
    if any(not _PLACEHOLDER.match(match[1] or match[2] or "") for match in _IN_URL.finditer(value)):
        return "a password in a URL"
    for words, look in _LOOKS:
        if look.search(value):
            return words
    is_sql = _SQL.search(value) is not None
    for name, given in _parameters(value):
        # in SQL a column is compared with another one
        if is_secret(name) and not (is_sql and given[:1] not in {"'", '"'}):
            return f"'{name.strip()}='"
    return None


def _parameters(value: str) -> Iterator[tuple[str, str]]:
    """Names and values of `?a=b&c=d`, `a=b;c=d`, `{"a": "b"}` and their like; placeholders are left out."""
    for match in _PARAMETER.finditer(value):
        if not _PLACEHOLDER.match(match[2].strip("\"'")):
            yield match[1], match[2]


def secret_elsewhere(option: str, form: str | None = None) -> tuple[str, str] | None:
    """Return the option that is to be looked up, as it is spelled, and in what (`env`, `file`). None: the option is not
    one of these; clients of some formats have options of their own that end in `.file`."""
    name, _, where = option.rpartition(".")
    words = _WORD.findall(name)
    if not words or (form is not None and option.lower() in find_format(form).plain_options):
        return None
    if where.lower() == ENV or (where.lower() == FILE and (is_secret(name, form) or words[-1].lower() in _FROM_FILE)):
        return name, where.lower()
    return None


def check_no_secret(options: Mapping[str, Any], form: str | None = None) -> None:
    """Raise ValueError if a secret stands among options, in any format. The value is not repeated."""
    for option, value in options.items():
        if secret_elsewhere(option, form) is not None:
            continue
        held = "is a secret" if is_secret(option, form) else None
        if held is None and (kind := secret_in(str(value))) is not None:
            held = f"holds a secret ({kind})"
        if held is not None:
            asked = CLIENT_PREFIX + plain_name(option) if option.lower().startswith(CLIENT_PREFIX) else option
            raise ValueError(f"option '{option}' {held}: say {asked}.{ENV}: VARIABLE or {asked}.{FILE}: PATH")


def check_plain_place(what: str, place: str) -> None:
    """Raise ValueError if a path or URI holds a secret."""
    if (held := secret_in(place)) is not None:
        raise ValueError(
            f"{what} holds a secret ({held}): leave it out, and give it to Spark's file system as a setting"
        )


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of Spark that may be written down. A run that is resumed is given the others again."""
    return {name: value for name, value in settings.items() if not is_secret(name) and secret_in(str(value)) is None}


# Secrets that this process has read, to hide them in messages, logs and reports.


HIDDEN = "***"
_MIN_LENGTH = 4
"""Shorter ones would blot out ordinary words, and are no secret."""

_known: set[str] = set()
_PASSWORD_IN_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/?#\s@:]*:)[^/?#\s@]+@")


def remember(secret: str) -> str:
    """Hide this value in all that `redact` sees from now on. Return it."""
    if len(secret) >= _MIN_LENGTH:
        _known.add(secret)
        # one that has several lines, or quotes, is shown in parts or escaped
        _known.update(line for line in secret.splitlines() if len(line) >= _MIN_LENGTH)
        _known.add(secret.replace("\\", "\\\\").replace('"', '\\"'))
    return secret


def redact(text: str) -> str:
    """Return the text with known secrets, and passwords in URLs, replaced by asterisks."""
    for secret in sorted(_known, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return _PASSWORD_IN_URL.sub(rf"\1{HIDDEN}@", text) if "@" in text else text
