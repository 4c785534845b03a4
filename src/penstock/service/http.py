"""What every request passes: tokens and sessions, limits of each token, bodies within bounds, errors as answers.

All but health needs a token or a session, a Host and an Origin that are ours, and a body that is not too long. A page
of another site that makes a browser call this address is stopped by Host and Origin even if the browser would send
something it knows. A token comes in a header. A browser that logged in sends a cookie, and then the page that makes it
change something must be of this very address, port included: cookies know no ports.

Holders of one token share limits, so that they cannot take what holders of another need.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from http.cookies import CookieError, SimpleCookie
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import quote, urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError, PenstockError, nearest
from penstock.control.core.messages import LONGEST_NAME, asked_by
from penstock.control.errors import ConflictError, FieldError, NotFoundError, StoreError
from penstock.control.store.lease import LostLeaseError
from penstock.service.bodies import read_body

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from fastapi import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from penstock.base.files import Spec
    from penstock.control.controller import Controller
    from penstock.control.core.records import PipelineRecord
    from penstock.service.pages.site import LoginPage

# Browser logins: sessions behind a cookie, and codes that open one session once.
#
# A token never stands in an address or in a page. A browser gets a cookie that scripts cannot read and that other
# sites' pages cannot make it send; it ends with the service, or after a day without use.


SESSION_SECONDS = 86_400.0
"""Seconds without use after which a session ends."""
CODE_SECONDS = 600.0
"""Seconds after which an unused code expires."""
MAX_SESSIONS = 1000
"""Max sessions for each role: the oldest of the same role gives way."""


class Role(StrEnum):
    """Rights of a token: one for each of the three."""

    READ = "read"
    """Sees everything, changes nothing."""
    ATTACH = "attach"
    """Registers an application, reports for it, reads its admitted size."""
    WRITE = "write"
    """Everything; that includes running code as the controller's user."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """An authenticated user: the name they give, and the rights of their token."""

    who: str
    role: Role
    session: str = ""
    """The key of a browser's session; empty for a token in a header."""

    @property
    def may_act(self) -> bool:
        return self.role is Role.WRITE


@dataclass(frozen=True, slots=True)
class _Entry:
    visitor: Visitor
    until: float


_Table = dict[str, _Entry]


class Sessions:
    def __init__(self) -> None:
        self._watch = Stopwatch()
        self._lock = Lock()
        self._sessions: dict[Role, _Table] = {role: {} for role in Role}
        self._codes: dict[Role, _Table] = {role: {} for role in Role}

    def make_code(self, visitor: Visitor) -> str:
        with self._lock:
            return self._put(self._codes[visitor.role], visitor, CODE_SECONDS)

    def use_code(self, code: str) -> Visitor | None:
        """Once."""
        with self._lock:
            entry = _taken(self._codes, code)
            return entry.visitor if entry is not None and entry.until > self._watch.seconds() else None

    def open(self, visitor: Visitor) -> str:
        with self._lock:
            return self._put(self._sessions[visitor.role], visitor, SESSION_SECONDS)

    def find(self, session: str) -> Visitor | None:
        with self._lock:
            entry = _taken(self._sessions, session)
            now = self._watch.seconds()
            if entry is None or entry.until <= now:
                return None
            # put back at the end: the first is the one unused for longest
            self._sessions[entry.visitor.role][session] = replace(entry, until=now + SESSION_SECONDS)
            return replace(entry.visitor, session=session)

    def close(self, session: str) -> None:
        with self._lock:
            _taken(self._sessions, session)

    def _put(self, table: _Table, visitor: Visitor, seconds: float) -> str:
        now = self._watch.seconds()
        for key in [key for key, entry in table.items() if entry.until <= now]:
            del table[key]
        while len(table) >= MAX_SESSIONS:
            del table[next(iter(table))]
        key = secrets.token_urlsafe(32)
        table[key] = _Entry(visitor, now + seconds)
        return key


def _taken(tables: dict[Role, _Table], key: str) -> _Entry | None:
    """The entry, which is then in no table."""
    return next((table.pop(key) for table in tables.values() if key in table), None)


log = logging.getLogger("penstock.service")

MAX_BODY = 4 * 1024 * 1024
MAX_LOGIN_BODY = 4 * 1024
MAX_ATTACHED_BODY = 1024 * 1024
MAX_ANSWERING = {Role.READ: 64, Role.ATTACH: 64, Role.WRITE: 128}
"""Requests of holders of one token that are answered at once, without those that watch."""
READING = frozenset({"GET", "HEAD"})
HEALTH = frozenset({"/health", "/health/live", "/health/ready"})
LOGIN = "/login"
LOGIN_CODES = "/v1/login-codes"
"""A token that may only read gets a code that may only read."""
WATCH = "/v1/watch"
ATTACHED = "/v1/attached"
USER_HEADER = "penstock-user"
"""Header with the user's own name, for the log of requests."""
COOKIE = "penstock"
HEADER_EXPECTED = "expected the header 'Authorization: Bearer TOKEN' with a token of this controller"
MAX_WRONG_TOKENS = 30
"""Max wrong tokens of one address in a minute; right ones are always accepted."""
WRONG_TOKEN_SECONDS = 60.0
MAX_PEERS = 1000


class WrongTokens:
    """Counts tokens that open nothing, by address."""

    def __init__(self) -> None:
        self._watch = Stopwatch()
        self._peers: dict[str, tuple[float, int]] = {}

    def count(self, peer: str) -> bool:
        """Note one more; whether these are too many."""
        now = self._watch.seconds()
        began, count = self._peers.pop(peer, (now, 0))
        if now - began >= WRONG_TOKEN_SECONDS:
            began, count = now, 0
        while len(self._peers) >= MAX_PEERS:
            del self._peers[next(iter(self._peers))]
        self._peers[peer] = (began, count + 1)
        log.warning("a token or code from %s opens nothing", plain_name(peer) or "nowhere")
        return count >= MAX_WRONG_TOKENS


@dataclass(frozen=True, slots=True)
class Doors:
    """`hosts` are the names this service answers to, without port."""

    token: str
    read_token: str
    hosts: frozenset[str]
    attach_token: str = ""
    """Empty: applications need the write token."""
    sessions: Sessions = field(default_factory=Sessions)
    wrong_tokens: WrongTokens = field(default_factory=WrongTokens)

    def visitor(self, token: str, who: str = "") -> Visitor | None:
        """The holder of a token of ours."""
        tokens = {Role.WRITE: self.token, Role.READ: self.read_token, Role.ATTACH: self.attach_token}
        role = next((role for role, known in tokens.items() if same(token, known)), None)
        return None if role is None else Visitor(plain_name(who) or "a holder of the token", role)


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
        self._answering: Counter[Role] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        verdict = self._admit(scope["method"], scope["path"], headers, peer_of(scope))
        if isinstance(verdict, _Refused):
            await self._refusal(scope["method"], headers, verdict)(scope, receive, send)
            return
        counted = None if verdict is None or scope["path"] == WATCH else verdict.role
        if counted is not None and self._answering[counted] >= MAX_ANSWERING[counted]:
            error = f"{MAX_ANSWERING[counted]} requests with this token are being answered; ask again in a second"
            await JSONResponse({"error": error}, 429, {"Retry-After": "1"})(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["visitor"] = verdict
        state["max_body"] = max_body(scope["path"], verdict)
        named = asked_by.set(verdict.who if verdict is not None else "")
        if counted is not None:
            self._answering[counted] += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            asked_by.reset(named)
            if counted is not None:
                self._answering[counted] -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. As a last resort log an unexpected error once and reveal nothing of it."""
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception:
            if "failure" not in scope["state"]:
                failure = log_failure(f"{scope['method']} {scope['path']}")
                if not begun:
                    await broken(failure)(scope, receive, send)

    def _refusal(self, method: str, headers: Mapping[str, str], refused: _Refused) -> Response:
        browses = method in READING and "text/html" in headers.get("accept", "")
        if refused.status == 401 and browses and self._login is not None:
            return Response(self._login.body, 401, self._login.headers, "text/html; charset=utf-8")
        return JSONResponse({"error": refused.error}, refused.status)

    def _admit(  # noqa: PLR0911 - one return for every door
        self, method: str, path: str, headers: dict[str, str], peer: str
    ) -> Visitor | _Refused | None:
        if not self._ours(headers.get("host", "")):
            return _Refused(403, "this host name is not one this controller answers to")
        origin = headers.get("origin")
        if origin is not None and not self._ours(urlsplit_host(origin)):
            return _Refused(403, "requests from pages of other sites are not answered")
        visitor = self._with_token(headers) or self._with_cookie(headers)
        length, most = headers.get("content-length", "0"), max_body(path, visitor)
        if not length.isascii() or not length.isdigit() or int(length[:19]) > most:
            return _Refused(413, f"a body may have at most {most} bytes here")
        if path in HEALTH and method in READING:
            return visitor
        same_page = origin is None or urlsplit_host(origin) == headers.get("host")
        if path == LOGIN and method == "POST":
            # it asks for a token or a code itself
            return None if same_page else _Refused(403, "log in from this controller's own page")
        if visitor is None:
            if bearer(headers) and self._doors.wrong_tokens.count(peer):
                return _Refused(429, "too many wrong tokens from this address; try again in a minute")
            return _Refused(401, HEADER_EXPECTED)
        if visitor.session and method not in READING and (origin is None or not same_page):
            return _Refused(403, "only this controller's own pages change anything for a browser that logged in")
        if visitor.role is Role.ATTACH and path != ATTACHED and not path.startswith(f"{ATTACHED}/"):
            return _Refused(403, "this token may only register applications and report for them, below /v1/attached")
        if method not in READING and visitor.role is Role.READ and path not in {LOGIN_CODES, "/logout"}:
            return _Refused(403, "this token may only read")
        return visitor

    def _with_token(self, headers: dict[str, str]) -> Visitor | None:
        token = bearer(headers)
        return self._doors.visitor(token, headers.get(USER_HEADER, "")) if token else None

    def _with_cookie(self, headers: dict[str, str]) -> Visitor | None:
        session = session_of(headers.get("cookie", ""))
        return None if not session else self._doors.sessions.find(session)

    def _ours(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if host.count(":") == 1 or (host.startswith("[") and "]:" in host) else host
        return name.strip("[]").lower() in self._doors.hosts


def bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def peer_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def max_body(path: str, visitor: Visitor | None) -> int:
    """Bytes that are read of a request: few of one that shows no token."""
    if visitor is None or path == LOGIN:
        return MAX_LOGIN_BODY
    return MAX_ATTACHED_BODY if visitor.role is Role.ATTACH else MAX_BODY


def log_failure(what: str) -> str:
    """Log the error that is being handled, under a number that can be shown to the client."""
    failure = secrets.token_hex(4)
    log.exception("error %s: %s", failure, plain_name(what))
    return failure


def broken(failure: str) -> JSONResponse:
    return JSONResponse({"error": f"an error in the controller; its log has it under {failure}"}, 500)


def session_of(cookies: str) -> str:
    try:
        cookie = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


def plain_name(text: str) -> str:
    """Make a user's name safe for a log."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:LONGEST_NAME]


def urlsplit_host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def same(given: str, token: str) -> bool:
    """Compare in constant time, which reveals nothing about matching parts."""
    return bool(token) and secrets.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())


# Helpers of all routes.

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B", bound="Spec")

MOST_ROWS = 1000
"""Max rows of one answer: the next page is named in the header `Link`."""

THREADS = {Role.READ: 8, Role.ATTACH: 4, Role.WRITE: 8}
"""Threads for each token: holders of one that may only read cannot fill those that change something."""
MAX_BODY_IN_LOOP = 16 * 1024
"""A longer body is parsed in a thread: others are answered meanwhile."""


class TooManyError(PenstockError):
    """A limit of the holders of one token; asking again later may work."""


STATUS = {
    NotFoundError: 404,
    TooManyError: 429,
    ConflictError: 409,
    FieldError: 400,
    BadInputError: 400,
    StoreError: 503,
    LostLeaseError: 503,
    PenstockError: 409,
}


def found_pipeline(controller: Controller, name: str) -> PipelineRecord:
    record = controller.state.pipelines.get(name)
    if record is None:
        raise NotFoundError(f"no pipeline '{name}'; {nearest(name, controller.state.pipelines)}")
    return record


async def rows_of(
    controller: Controller, request: Request, question: Any, made: Callable[[Any], dict[str, Any]]
) -> JSONResponse:
    """A page of what the store answers."""
    first, last = page_of(request)
    rows = await in_thread(request, controller.store.read, question.offset(first).limit(last - first + 1))
    documents = [made(row) for row in rows[: last - first]]
    return paged(request, documents, more=len(rows) > last - first)


def make_threads() -> dict[Role, CapacityLimiter]:
    return {role: CapacityLimiter(count) for role, count in THREADS.items()}


async def in_thread(request: Request, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """Run `work` in one of the threads for holders of the same token."""
    limiter = request.app.state.threads[request.state.visitor.role]
    return await to_thread.run_sync(partial(work, *args, **options), limiter=limiter)


async def while_connected(request: Request, work: Coroutine[Any, Any, R]) -> R:
    """The result of `work`, which is cancelled when the client leaves."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def raw_body(request: Request) -> bytes:
    body, most = bytearray(), request.state.max_body
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise FieldError("body", f"more than {most} bytes")
    return bytes(body)


async def body_of(request: Request, shape: type[B]) -> B:
    """The body as `shape`, or a `FieldError` that names the first field that is wrong."""
    raw = await raw_body(request)
    if len(raw) <= MAX_BODY_IN_LOOP:
        return read_body(shape, raw)
    return await in_thread(request, read_body, shape, raw)


async def refused(_: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    document: dict[str, Any] = {"error": str(error)}
    if status == 400:
        document["field"] = error.field if isinstance(error, FieldError) else None
    return JSONResponse(document, status, {"Retry-After": "5"} if status == 429 else None)


async def hung_up(_: Request, __: Exception) -> JSONResponse:
    """Answer a client that left before its request was complete: the answer is not read."""
    return JSONResponse({"error": "the request was not finished"}, 400)


async def failed(request: Request, _: Exception) -> JSONResponse:
    """Log an unexpected error once; the answer shows nothing of it."""
    request.state.failure = log_failure(f"{request.method} {request.url.path}")
    return broken(request.state.failure)


async def not_here(_: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = {404: "there is nothing at this path", 405: "this path does not take that method"}
    return JSONResponse({"error": detail.get(status, str(error))}, status)


def trigger_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise NotFoundError(f"no trigger '{text[:40]}': triggers have numbers")
    return int(text)


def since_of(request: Request) -> float:
    text = request.query_params.get("since", "0")
    try:
        since = float(text)
    except ValueError:
        since = float("nan")
    if not abs(since) < 1e15:
        raise FieldError("since", f"expected seconds since the epoch, found '{text[:40]}'")
    return since


def page_of(request: Request) -> tuple[int, int]:
    numbers = []
    for name, default, most in (("offset", 0, 10**9), ("limit", MOST_ROWS, MOST_ROWS)):
        text = request.query_params.get(name, str(default))
        if not (text.isascii() and text.isdigit() and int(text[:12]) <= most):
            raise FieldError(name, f"expected a whole number from 0 to {most}, found '{text[:40]}'")
        numbers.append(int(text))
    return numbers[0], numbers[0] + numbers[1]


def paged(request: Request, rows: list[dict[str, Any]], *, more: bool) -> JSONResponse:
    headers = {}
    if more:
        first, last = page_of(request)
        following = request.url.include_query_params(offset=last, limit=last - first)
        # headers are Latin-1; names of pipelines are of any script
        address = quote(str(following), safe="%/:=&?~#+!$,;'@()*[]")
        headers["Link"] = f'<{address}>; rel="next"'
    return JSONResponse(rows, headers=headers)


def body_schema(shape: type[Any]) -> dict[str, Any]:
    """Schema for the OpenAPI page: bodies are read by hand, so that errors are ours."""
    schema_of = shape.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema_of}}}}
