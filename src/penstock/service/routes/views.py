"""What the page asks for: the fleet, one pipeline, the cluster, decisions, and what would happen if. All of it only
reads; these answers follow the page and are no contract."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request

from penstock.control.core.messages import DecisionKind
from penstock.control.errors import FieldError
from penstock.control.metrics import Metric
from penstock.control.what_if import check_work
from penstock.planning.registry import SHARERS
from penstock.service import documents
from penstock.service.http import Role, found_pipeline, in_thread, since_of, while_connected
from penstock.service.pages import charts as history
from penstock.service.pages.fleet import Trails, cluster_map, decision_log, fleet, one_pipeline, seats
from penstock.service.pages.page_list import pages
from penstock.service.routes.cluster import details, nodes_of
from penstock.service.what_if import WhatIfLane, asked_question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.controller import Controller
    from penstock.control.executors.attached_applications import WithAttached
    from penstock.service.pages.page_list import Page, View

MOST_DECISIONS = 200


@dataclass(frozen=True)
class ViewContext:
    """What views read from."""

    controller: Controller
    attached: WithAttached
    trails: Trails
    lanes: Mapping[Role, WhatIfLane]


async def show_fleet(context: ViewContext, _request: Request) -> dict[str, Any]:
    return fleet(context.controller, context.trails)


async def show_pipeline(context: ViewContext, request: Request) -> dict[str, Any]:
    controller = context.controller
    record = found_pipeline(controller, request.query_params.get("name", ""))

    def look() -> dict[str, Any]:
        view = one_pipeline(controller, record)
        advice = context.attached.advice_of(record.name)
        return {**view, "advice": advice, "seats": seats(controller, record) if view["graph"] else None}

    return await in_thread(request, look)


async def show_cluster(context: ViewContext, request: Request) -> dict[str, Any]:
    state = context.controller.state
    nodes_now = await in_thread(request, nodes_of, context.controller)
    return {**cluster_map(state, nodes_now), "policy": documents.policy(state.policy)}


async def show_decisions(context: ViewContext, request: Request) -> dict[str, Any]:
    pipeline, kind = (request.query_params.get(name, "")[:200] for name in ("pipeline", "kind"))
    before = _whole(request, "before")
    most = min(_whole(request, "most") or 50, MOST_DECISIONS)
    rows = await in_thread(request, decision_log, context.controller.store, pipeline, kind, before, most)
    return {"decisions": rows, "kinds": [str(kind) for kind in DecisionKind]}


async def show_what_if(context: ViewContext, request: Request) -> dict[str, Any]:
    controller = context.controller
    state = controller.state
    question = asked_question(request.query_params, state)
    check_work(state, question)
    lane = context.lanes[request.state.visitor.role]
    return await while_connected(request, lane.ask(state, controller.sizing, question, controller.clock.now()))


def view_routes(controller: Controller, attached: WithAttached) -> APIRouter:
    router = APIRouter(prefix="/v1/views", include_in_schema=False)
    context = ViewContext(controller, attached, Trails(controller), {role: WhatIfLane() for role in Role})

    @router.get("/start")
    async def start(request: Request) -> dict[str, Any]:
        """What the page needs once."""
        visitor = request.state.visitor
        return {
            "who": visitor.who,
            "may_act": visitor.may_act,
            "policies": SHARERS.names(),
            "metrics": {str(metric): {"unit": metric.unit, "about": metric.help} for metric in Metric},
            "pages": [
                {"path": page.path, "title": page.title, "script": page.script, "key": page.key, "menu": page.menu}
                for page in pages()
            ],
            "fleet": fleet(controller, context.trails),
        }

    @router.get("/health")
    async def show_health() -> dict[str, Any]:
        """Always a 200: the page is there to show trouble."""
        return details(controller.health())

    for page in pages():
        _add_view(router, page, context)

    @router.get("/series")
    async def show_series(request: Request) -> dict[str, Any]:
        record, since = found_pipeline(controller, request.query_params.get("name", "")), since_of(request)

        def look() -> dict[str, Any]:
            sizing, submission = controller.sizing, record.submission
            times, columns = history.measured(controller.store, record.name, since)
            predicted = history.predicted(
                times,
                columns,
                lambda units: sizing.rate_on(submission, units),
                lambda rate: sizing.usage(submission, rate),
            )
            return {
                "at": times,
                "measured": columns,
                "predicted": predicted,
                "changes": history.changes(controller.store, record.name, since),
            }

        return await in_thread(request, look)

    return router


def _add_view(router: APIRouter, page: Page, context: ViewContext) -> None:
    module, _, name = page.view.partition(":")
    view: View = getattr(import_module(module), name)

    async def show(request: Request) -> dict[str, Any]:
        return await view(context, request)

    router.add_api_route(f"/{page.data}", show, methods=["GET"])


def _whole(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise FieldError(name, f"expected a whole number, found '{text[:40]}'")
    return int(text)
