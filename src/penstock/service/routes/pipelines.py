"""Pipelines over HTTP: submit, list, show, amend, kill, and the output of their drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from penstock.control.core.incoming import (
    Amend,
    Kill,
    Submit,
)
from penstock.control.errors import ConflictError, FieldError
from penstock.errors import BadInputError
from penstock.service import bodies, documents
from penstock.service.http import body_of, body_schema, found_pipeline, in_thread, page_of, paged

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.controller import Controller
    from penstock.control.core.records import Submission


def pipeline_routes(
    controller: Controller,
    described: Callable[[Any], dict[str, Any]],
    log_of: Callable[[str], str],
    *,
    loads_change: bool,
) -> APIRouter:
    router = APIRouter(prefix="/v1/pipelines", tags=["pipelines"])

    @router.post("", status_code=201, openapi_extra=body_schema(bodies.SubmissionBody))
    async def submit(request: Request) -> dict[str, Any]:
        body = await body_of(request, bodies.SubmissionBody)

        def act() -> dict[str, Any]:
            submission = bodies.submission_of(body, described, controller.state.unit_slots)
            _size(controller, submission)
            controller.ask(Submit(submission))
            return documents.pipeline(controller.state, found_pipeline(controller, body.name))

        return await in_thread(request, act)

    @router.get("")
    async def pipelines(request: Request) -> JSONResponse:
        state = controller.state
        records = sorted(state.pipelines.values(), key=lambda record: record.number)
        first, last = page_of(request)
        rows = [documents.pipeline(state, record) for record in records[first:last]]
        return paged(request, rows, more=len(records) > last)

    @router.get("/{name}")
    async def pipeline(name: str) -> JSONResponse:
        return JSONResponse(documents.pipeline(controller.state, found_pipeline(controller, name)))

    @router.patch("/{name}", openapi_extra=body_schema(bodies.AmendBody))
    async def amend(name: str, request: Request) -> dict[str, Any]:
        body = await body_of(request, bodies.AmendBody)
        record = found_pipeline(controller, name)
        if body.load is not None and not loads_change and bodies.load_text(body.load) != record.load:
            raise ConflictError(
                f"pipeline '{name}' is {record.state}: on Spark its source emits what it was submitted with; "
                "kill it and submit it with another load"
            )

        def act() -> dict[str, Any]:
            asked = Amend(
                name,
                None if body.target is None else body.target.target(),
                body.priority,
                body.minimum,
                body.maximum,
                body.paused,
                bodies.load_text(body.load),
                bodies.elastic_options(body.elastic),
            )
            controller.ask(asked)
            return documents.pipeline(controller.state, found_pipeline(controller, name))

        return await in_thread(request, act)

    @router.delete("/{name}")
    async def kill(name: str, request: Request) -> dict[str, Any]:
        await in_thread(request, controller.ask, Kill(name))
        return documents.pipeline(controller.state, found_pipeline(controller, name))

    @router.get("/{name}/log")
    async def log(name: str, request: Request) -> Response:
        found_pipeline(controller, name)
        return Response(await in_thread(request, log_of, name), media_type="text/plain; charset=utf-8")

    return router


def _size(controller: Controller, submission: Submission) -> None:
    """A pipeline that cannot be sized is refused before it is taken in."""
    try:
        controller.sizing.units_for(submission, submission.target.rate or 1.0)
    except BadInputError as error:
        raise FieldError("pipeline", str(error)) from error
