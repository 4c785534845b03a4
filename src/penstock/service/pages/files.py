"""The files of the page, as they are sent: read once, and allowed to load nothing from elsewhere."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
FROM_HERE_ONLY = (
    "default-src 'none'; script-src {script}; style-src {style}; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGE_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": FROM_HERE_ONLY.format(script="'self'", style="'self'"),
    "Cache-Control": "no-store",
}
ASSET_HEADERS = {**HEADERS, "Cache-Control": "private, no-cache"}
"""A browser asks whether its copy is still right; that costs no bytes."""


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    media_type: str
    tag: str


@dataclass(frozen=True, slots=True)
class LoginPage:
    """Complete in itself: nothing else is sent to a client without a session."""

    body: bytes
    headers: dict[str, str]


@cache
def assets() -> dict[str, Asset]:
    """Assets by name."""
    return {
        path.name: Asset(body := path.read_bytes(), MEDIA_TYPES[path.suffix], _tag(body))
        for path in sorted(ASSETS.iterdir())
        if path.suffix in MEDIA_TYPES
    }


def page() -> bytes:
    return assets()["index.html"].body


@cache
def login_page() -> LoginPage:
    """Its script and its style stand in it; the browser runs these two and no others, by their sums."""
    body = assets()["login.html"].body
    sums = {name: _sum(body, name) for name in ("script", "style")}
    policy = FROM_HERE_ONLY.format(**sums)
    return LoginPage(body, {**HEADERS, "Content-Security-Policy": policy, "Cache-Control": "no-store"})


def _sum(body: bytes, element: str) -> str:
    content = re.search(f"<{element}>(.*?)</{element}>".encode(), body, re.DOTALL)
    digest = hashlib.sha256(content[1] if content else b"").digest()
    return f"'sha256-{b64encode(digest).decode()}'"


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:24]}"'
