"""Who may ask: a token or a session on everything but health, a Host and an Origin that are ours, a body not too long.

A page of another site that makes a browser call this address is stopped by Host and Origin even where the browser would
send something it knows. A token comes in a header. A browser that logged in sends a cookie, and then the page that
makes it change something must be of this very address, port included: cookies know no ports.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import JSONResponse, Response

from penstock.control.asking import LONGEST_NAME, asked_by
from penstock.service.sessions import Sessions, Visitor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from penstock.service.pages.files import LoginPage

MOST_BODY = 4 * 1024 * 1024
READING = frozenset({"GET", "HEAD"})
LOGIN = "/login"
LOGIN_CODES = "/v1/login-codes"
"""A token that may only read gets a code that may only read."""
USER_HEADER = "penstock-user"
"""Who holds the token, as they say: for the log of what was asked for."""
COOKIE = "penstock"
HEADER_EXPECTED = "expected the header 'Authorization: Bearer TOKEN' with a token of this controller"


@dataclass(frozen=True, slots=True)
class Doors:
    """`hosts` are the names this service answers to, without port."""

    token: str
    read_token: str
    hosts: frozenset[str]
    sessions: Sessions = field(default_factory=Sessions)

    def visitor(self, token: str, who: str = "") -> Visitor | None:
        """Whoever shows a token of ours."""
        may_act = same(token, self.token)
        if not (may_act or same(token, self.read_token)):
            return None
        return Visitor(plain_name(who) or "a holder of the token", may_act)


@dataclass(frozen=True, slots=True)
class _Refused:
    status: int
    error: str


class Guard:
    """Stands before everything else."""

    def __init__(self, app: ASGIApp, doors: Doors, login: LoginPage | None = None) -> None:
        """`login` is what a browser without a session sees instead of an error."""
        self._app = app
        self._doors = doors
        self._login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        verdict = self._admit(scope["method"], scope["path"], headers)
        if isinstance(verdict, _Refused):
            await self._refusal(scope["method"], headers, verdict)(scope, receive, send)
            return
        scope.setdefault("state", {})["visitor"] = verdict
        named = asked_by.set(verdict.who if verdict is not None else "")
        try:
            await self._app(scope, receive, send)
        finally:
            asked_by.reset(named)

    def _refusal(self, method: str, headers: Mapping[str, str], refused: _Refused) -> Response:
        browses = method in READING and "text/html" in headers.get("accept", "")
        if refused.status == 401 and browses and self._login is not None:
            return Response(self._login.body, 401, self._login.headers, "text/html; charset=utf-8")
        return JSONResponse({"error": refused.error}, refused.status)

    def _admit(  # noqa: PLR0911 - one return for every door
        self, method: str, path: str, headers: dict[str, str]
    ) -> Visitor | _Refused | None:
        if not self._ours(headers.get("host", "")):
            return _Refused(403, "this host name is not one this controller answers to")
        origin = headers.get("origin")
        if origin is not None and not self._ours(urlsplit_host(origin)):
            return _Refused(403, "requests from pages of other sites are not answered")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:19]) > MOST_BODY:
            return _Refused(413, f"a body may have at most {MOST_BODY} bytes")
        if path == "/health" and method in READING:
            return None
        same_page = origin is None or urlsplit_host(origin) == headers.get("host")
        if path == LOGIN and method == "POST":
            # it asks for a token or a code itself
            return None if same_page else _Refused(403, "log in from this controller's own page")
        visitor = self._with_token(headers)
        if visitor is None:
            visitor = self._with_cookie(headers)
            if visitor is None:
                return _Refused(401, HEADER_EXPECTED)
            if method not in READING and (origin is None or not same_page):
                return _Refused(403, "only this controller's own pages change anything for a browser that logged in")
        if method not in READING and not visitor.may_act and path not in {LOGIN_CODES, "/logout"}:
            return _Refused(403, "this token may only read")
        return visitor

    def _with_token(self, headers: dict[str, str]) -> Visitor | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return self._doors.visitor(token, headers.get(USER_HEADER, "")) if scheme.lower() == "bearer" else None

    def _with_cookie(self, headers: dict[str, str]) -> Visitor | None:
        session = session_of(headers.get("cookie", ""))
        return None if not session else self._doors.sessions.find(session)

    def _ours(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if host.count(":") == 1 or (host.startswith("[") and "]:" in host) else host
        return name.strip("[]").lower() in self._doors.hosts


def session_of(cookies: str) -> str:
    try:
        cookie = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


def plain_name(text: str) -> str:
    """What somebody calls themselves, as it can stand in a log."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:LONGEST_NAME]


def urlsplit_host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def same(given: str, token: str) -> bool:
    """In a time that says nothing about how much of it was right."""
    return bool(token) and secrets.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())
