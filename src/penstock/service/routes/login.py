"""Logging in with a browser: a token or a code that opens one session, a cookie from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import StrictStr

from penstock.files import Spec
from penstock.service.guard import COOKIE, LOGIN, LOGIN_CODES, peer_of, plain_name, session_of
from penstock.service.http import body_of, body_schema
from penstock.service.sessions import CODE_SECONDS, Role, Visitor

if TYPE_CHECKING:
    from penstock.service.guard import Doors
    from penstock.service.watching import Watching


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
