"""Helpers of all routes: bodies within bounds, threads of each token's holders, pages of lists, errors as answers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from penstock.base.errors import BadInputError, PenstockError, nearest
from penstock.control.errors import ConflictError, FieldError, NotFoundError, StoreError
from penstock.control.store.lease import LostLeaseError
from penstock.service.bodies import read_body
from penstock.service.guard import Role, broken, log_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import Request

    from penstock.base.files import Spec
    from penstock.control.controller import Controller
    from penstock.control.core.records import PipelineRecord

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
