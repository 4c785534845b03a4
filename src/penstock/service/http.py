"""What all routes share: bodies within bounds, pages of lists, errors as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.control.errors import ConflictError, FieldError, NotFoundError
from penstock.control.store.lease import LostLeaseError
from penstock.control.store.store import StoreError
from penstock.errors import BadInputError, PenstockError, nearest
from penstock.service.guard import MOST_BODY

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

    from penstock.control.controller import Controller
    from penstock.control.core.records import PipelineRecord

MOST_ROWS = 1000
"""Of one answer: the next page is named in the header `Link`."""

STATUS = {
    NotFoundError: 404,
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
    rows = await run_in_threadpool(controller.store.read, question.offset(first).limit(last - first + 1))
    documents = [made(row) for row in rows[: last - first]]
    return paged(request, documents, more=len(rows) > last - first)


async def raw_body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY:
            raise FieldError("body", f"more than {MOST_BODY} bytes")
    return bytes(body)


async def refused(_: Request, error: Exception) -> JSONResponse:
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    document: dict[str, Any] = {"error": str(error)}
    if status == 400:
        document["field"] = error.field if isinstance(error, FieldError) else None
    return JSONResponse(document, status)


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
        headers["Link"] = f'<{following}>; rel="next"'
    return JSONResponse(rows, headers=headers)


def body_schema(shape: type[Any]) -> dict[str, Any]:
    """For the OpenAPI page: bodies are read by hand, so that errors are ours."""
    schema_of = shape.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema_of}}}}
