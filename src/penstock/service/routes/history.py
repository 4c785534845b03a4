"""What happened over HTTP: decisions, events, statistics, and everything as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from sqlalchemy import select

from penstock.control.errors import ConflictError, FieldError, NotFoundError
from penstock.control.metrics import MEANINGS, WINDOW_SECONDS, Scope
from penstock.control.store import schema
from penstock.control.store.thread_windows import unpacked
from penstock.errors import nearest
from penstock.service import documents
from penstock.service.http import found_pipeline, page_of, paged, rows_of, since_of
from penstock.service.prometheus import exposition
from penstock.service.watching import Watching

if TYPE_CHECKING:
    from penstock.control.controller import Controller


def history_routes(controller: Controller) -> APIRouter:
    router = APIRouter(tags=["history"])
    watching = Watching(controller)

    @router.get("/v1/decisions")
    async def decisions(request: Request) -> JSONResponse:
        table = schema.decisions
        question = select(table).where(table.c.at >= since_of(request)).order_by(table.c.number)
        if wanted := request.query_params.get("pipeline"):
            question = question.where(table.c.pipeline == wanted)
        return await rows_of(controller, request, question, documents.decision_row)

    @router.get("/v1/events")
    async def events(request: Request) -> JSONResponse:
        table = schema.events
        question = select(table).where(table.c.at >= since_of(request)).order_by(table.c.id)
        if wanted := request.query_params.get("pipeline") or request.query_params.get("subject"):
            question = question.where(table.c.subject == wanted)
        return await rows_of(controller, request, question, documents.event_row)

    @router.get("/v1/statistics/{name}")
    async def statistics(name: str, request: Request) -> JSONResponse:
        """Of a pipeline or a node; `?scope=` operator or thread: of the parts of the pipeline."""
        wanted = request.query_params.get("metric")
        if wanted and wanted not in list(MEANINGS):
            raise FieldError("metric", f"unknown metric '{wanted}'; {nearest(wanted, map(str, MEANINGS))}")
        if request.query_params.get("scope") == Scope.THREAD:
            found_pipeline(controller, name)
            first, last = page_of(request)
            rows = await run_in_threadpool(_of_threads, controller, name, since_of(request), wanted, last + 1)
            return paged(request, rows[first:last], more=len(rows) > last)
        table = schema.metrics
        question = select(table).where(_subjects(controller, name, request), table.c.at >= since_of(request))
        if wanted:
            question = question.where(table.c.metric == wanted)
        question = question.order_by(table.c.at, table.c.subject, table.c.metric)
        return await rows_of(controller, request, question, documents.statistics_row)

    @router.get("/v1/watch")
    async def watch() -> StreamingResponse:
        if watching.full:
            raise ConflictError("as many as can be are watching already")
        return StreamingResponse(watching.stream(), media_type="text/event-stream")

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(exposition(controller), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _subjects(controller: Controller, name: str, request: Request) -> Any:
    """Which rows are meant: names of subjects are paths, and names hold no slash."""
    subject = schema.metrics.c.subject
    wanted = request.query_params.get("scope")
    if wanted is not None and wanted not in list(Scope):
        raise FieldError("scope", f"unknown scope '{wanted}'; {nearest(wanted, map(str, Scope))}")
    if wanted == Scope.NODE or (wanted is None and name in controller.state.nodes and _unknown(controller, name)):
        if name not in controller.state.nodes:
            raise NotFoundError(f"no node '{name}'; {nearest(name, controller.state.nodes)}")
        return subject == f"/{name}"
    found_pipeline(controller, name)
    return subject.startswith(f"{name}/", autoescape=True) if wanted == Scope.OPERATOR else subject == name


def _of_threads(controller: Controller, name: str, since: float, wanted: str | None, most: int) -> list[dict[str, Any]]:
    """The first `most` rows: they are kept together, window by window."""
    table = schema.thread_windows
    question = select(table).where(table.c.pipeline == name, table.c.at >= since).order_by(table.c.at)
    rows: list[dict[str, Any]] = []
    for window in controller.store.read(question):
        for where, values in sorted(unpacked(window["readings"])):
            subject, at = f"{name}/{where}", window["at"]
            rows += [
                documents.statistics_row(
                    {"subject": subject, "metric": metric, "at": at, "seconds": int(WINDOW_SECONDS), "value": value}
                )
                for metric, value in sorted(values.items())
                if wanted in {None, "", metric}
            ]
        if len(rows) >= most:
            break
    return rows


def _unknown(controller: Controller, name: str) -> bool:
    return name not in controller.state.pipelines
