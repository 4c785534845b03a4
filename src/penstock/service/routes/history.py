"""What happened over HTTP: decisions, events, statistics, and everything as it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from sqlalchemy import select

from penstock.control.errors import FieldError, NotFoundError
from penstock.control.metrics import MEANINGS, Scope
from penstock.control.store import schema
from penstock.control.store.windows import NODES, threads_of
from penstock.errors import nearest
from penstock.service import documents
from penstock.service.http import TooManyError, found_pipeline, in_thread, page_of, paged, rows_of, since_of
from penstock.service.prometheus import exposition
from penstock.service.watching import MAX_WATCHERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.controller import Controller
    from penstock.control.store.store import Store
    from penstock.service.watching import Watching


def history_routes(controller: Controller, watching: Watching) -> APIRouter:
    router = APIRouter(tags=["history"])

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
        """Of a pipeline or a node; `?scope=` operator, thread or partition: of the parts of the pipeline."""
        wanted = request.query_params.get("metric")
        if wanted and wanted not in list(MEANINGS):
            raise FieldError("metric", f"unknown metric '{wanted}'; {nearest(wanted, map(str, MEANINGS))}")
        which, since, (first, last) = _which(controller, name, request), since_of(request), page_of(request)
        rows = await in_thread(request, _measured, controller.store, which, since, wanted or "", last + 1)
        return paged(request, rows[first:last], more=len(rows) > last)

    @router.get("/v1/watch")
    async def watch(request: Request) -> StreamingResponse:
        visitor = request.state.visitor
        if watching.is_full(visitor.role):
            raise TooManyError(f"{MAX_WATCHERS} are watching with this token already; end one of them")
        return StreamingResponse(watching.stream(visitor), media_type="text/event-stream")

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(exposition(controller), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


@dataclass(frozen=True, slots=True)
class _Which:
    """The owner of the windows, and which of their subjects are meant; `path` stands before those in full names."""

    owner: str
    path: str
    meant: Callable[[str], bool]


def _which(controller: Controller, name: str, request: Request) -> _Which:
    wanted = request.query_params.get("scope")
    if wanted is not None and wanted not in list(Scope):
        raise FieldError("scope", f"unknown scope '{wanted}'; {nearest(wanted, map(str, Scope))}")
    if wanted == Scope.NODE or (wanted is None and name in controller.state.nodes and _unknown(controller, name)):
        if name not in controller.state.nodes:
            raise NotFoundError(f"no node '{name}'; {nearest(name, controller.state.nodes)}")
        return _Which(NODES, NODES, lambda subject: subject == name)
    found_pipeline(controller, name)
    if wanted == Scope.THREAD:
        return _Which(threads_of(name), f"{name}/", bool)
    if wanted == Scope.OPERATOR:
        return _Which(name, f"{name}/", lambda subject: bool(subject) and "/" not in subject)
    if wanted == Scope.PARTITION:
        return _Which(name, f"{name}/", lambda subject: "/" in subject)
    return _Which(name, name, lambda subject: not subject)


def _measured(store: Store, which: _Which, since: float, wanted: str, most: int) -> list[dict[str, Any]]:
    """The first `most` rows, or a few more; `wanted` is a metric, or empty for all."""
    rows: list[dict[str, Any]] = []
    for at, seconds, readings in store.windows(which.owner, since):
        for subject, values in sorted(readings.items()):
            if which.meant(subject):
                path = f"{which.path}{subject}"
                rows += [
                    documents.statistics_row(path, metric, at, seconds, value)
                    for metric, value in sorted(values.items())
                    if wanted in {"", metric}
                ]
        if len(rows) >= most:
            break
    return rows


def _unknown(controller: Controller, name: str) -> bool:
    return name not in controller.state.pipelines
