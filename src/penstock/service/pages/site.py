"""The files of the page, as they are sent: read once, and allowed to load nothing from elsewhere."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import StrictStr

from penstock.base.errors import nearest
from penstock.base.files import Spec
from penstock.control.errors import NotFoundError
from penstock.service.http import (
    CODE_SECONDS,
    COOKIE,
    LOGIN,
    LOGIN_CODES,
    Role,
    Visitor,
    body_of,
    body_schema,
    peer_of,
    plain_name,
    session_of,
)
from penstock.service.pages.page_list import ASSETS, menu, pages, preloads

if TYPE_CHECKING:
    from penstock.service.http import Doors
    from penstock.service.routes.history import Watching


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
    paths = {path.name: path for path in sorted(ASSETS.iterdir())}
    paths |= {page.script: page.folder / page.script for page in pages()}
    return {
        name: Asset(body := path.read_bytes(), MEDIA_TYPES[path.suffix], _tag(body))
        for name, path in paths.items()
        if path.suffix in MEDIA_TYPES
    }


@cache
def page() -> bytes:
    """Return the frame of all pages, with their scripts and the menu."""
    frame = assets()["index.html"].body.decode()
    return frame.replace("<!-- scripts of pages -->", preloads()).replace("<!-- menu -->", menu()).encode()


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


def page_routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    async def show() -> Response:
        return Response(page(), headers=PAGE_HEADERS, media_type="text/html; charset=utf-8")

    for known in pages():
        # all are the same document; its script looks at the address
        router.add_api_route(known.path, show, methods=["GET", "HEAD"])

    @router.get("/assets/{name}")
    async def asset(name: str, request: Request) -> Response:
        known = assets()
        if name not in known:
            raise NotFoundError(f"no file '{name}'; {nearest(name, known)}")
        file = known[name]
        headers = {**ASSET_HEADERS, "ETag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers=headers, media_type=file.media_type)

    return router


# Logging in with a browser: a token or a code that opens one session, a cookie from then on.


class LoginBody(Spec):
    """Either of the first two; `who` is what the log calls them."""

    token: StrictStr | None = None
    code: StrictStr | None = None
    who: StrictStr | None = None


def login_routes(doors: Doors, watching: Watching) -> APIRouter:
    router = APIRouter(tags=["login"])

    @router.post(LOGIN, openapi_extra=body_schema(LoginBody))
    async def login(request: Request) -> JSONResponse:
        body = await body_of(request, LoginBody)
        visitor = _visitor(doors, body)
        if visitor is None:
            if doors.wrong_tokens.count(peer_of(request.scope)):
                error = "too many wrong tokens from this address; try again in a minute"
                return JSONResponse({"error": error}, 429, {"Retry-After": "60"})
            return JSONResponse({"error": "this token or code opens nothing; a code opens one session, once"}, 401)
        if visitor.role is Role.ATTACH:
            return JSONResponse({"error": "this token is for applications; log in with another"}, 403)
        answer = JSONResponse({"who": visitor.who, "may_act": visitor.may_act})
        answer.set_cookie(COOKIE, doors.sessions.open(visitor), httponly=True, samesite="strict")
        return answer

    @router.post("/logout")
    async def logout(request: Request) -> JSONResponse:
        session = session_of(request.headers.get("cookie", ""))
        doors.sessions.close(session)
        watching.end(session)
        answer = JSONResponse({})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    @router.post(LOGIN_CODES, status_code=201)
    async def make_code(request: Request) -> dict[str, Any]:
        """For whoever has the token: a code that stands in an address, opens one session and is then used up."""
        return {"code": doors.sessions.make_code(request.state.visitor), "seconds": CODE_SECONDS}

    return router


def _visitor(doors: Doors, body: LoginBody) -> Visitor | None:
    if body.code is not None:
        visitor = doors.sessions.use_code(body.code)
        named = plain_name(body.who or "")
        return Visitor(named, visitor.role) if visitor is not None and named else visitor
    return None if body.token is None else doors.visitor(body.token.strip(), body.who or "somebody with the token")
