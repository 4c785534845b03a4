"""Secrets that this process has looked up, so that no message, log or report repeats them."""

from __future__ import annotations

import re

HIDDEN = "***"
_MIN_LENGTH = 4
"""Shorter ones would blot out ordinary words, and are no secret."""

_known: set[str] = set()
_IN_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/?#\s@:]*:)[^/?#\s@]+@")


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
    return _IN_URL.sub(rf"\1{HIDDEN}@", text) if "@" in text else text
