"""What the page asks for: the fleet, one pipeline, the cluster, decisions, and what would happen if. All of it only
reads; these answers follow the page and are no contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request

from penstock.control.core.messages import DecisionKind
from penstock.control.errors import FieldError
from penstock.control.metrics import MEANINGS
from penstock.control.what_if import check_work
from penstock.planning.registry import SHARERS
from penstock.service import documents
from penstock.service.guard import Role
from penstock.service.http import found_pipeline, in_thread, since_of, while_connected
from penstock.service.pages import charts as history
from penstock.service.pages.fleet import Trails, cluster_map, decision_log, fleet, one_pipeline, seats
from penstock.service.routes.cluster import details, nodes_of
from penstock.service.what_if import WhatIfLane, asked_question

if TYPE_CHECKING:
    from penstock.control.controller import Controller
    from penstock.control.executors.attached_applications import WithAttached

MOST_DECISIONS = 200


def view_routes(controller: Controller, attached: WithAttached) -> APIRouter:
    router = APIRouter(prefix="/v1/views", include_in_schema=False)
    trails = Trails(controller)
    lanes = {role: WhatIfLane() for role in Role}

    @router.get("/start")
    async def start(request: Request) -> dict[str, Any]:
        """What the page needs once."""
        visitor = request.state.visitor
        return {
            "who": visitor.who,
            "may_act": visitor.may_act,
            "policies": SHARERS.names(),
            "metrics": {str(metric): {"unit": m.unit, "about": m.about} for metric, m in MEANINGS.items()},
            "fleet": fleet(controller, trails),
        }

    @router.get("/health")
    async def show_health() -> dict[str, Any]:
        """Always a 200: the page is there to show trouble."""
        return details(controller.health())

    @router.get("/fleet")
    async def show_fleet() -> dict[str, Any]:
        return fleet(controller, trails)

    @router.get("/pipeline")
    async def show_pipeline(request: Request) -> dict[str, Any]:
        record = found_pipeline(controller, request.query_params.get("name", ""))

        def look() -> dict[str, Any]:
            view = one_pipeline(controller, record)
            advice = attached.advice_of(record.name)
            return {**view, "advice": advice, "seats": seats(controller, record) if view["graph"] else None}

        return await in_thread(request, look)

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

    @router.get("/cluster")
    async def show_cluster(request: Request) -> dict[str, Any]:
        nodes_now = await in_thread(request, nodes_of, controller)
        return {**cluster_map(controller.state, nodes_now), "policy": documents.policy(controller.state.policy)}

    @router.get("/decisions")
    async def show_decisions(request: Request) -> dict[str, Any]:
        pipeline, kind = (request.query_params.get(name, "")[:200] for name in ("pipeline", "kind"))
        before = _whole(request, "before")
        most = min(_whole(request, "most") or 50, MOST_DECISIONS)
        rows = await in_thread(request, decision_log, controller.store, pipeline, kind, before, most)
        return {"decisions": rows, "kinds": [str(kind) for kind in DecisionKind]}

    @router.get("/what-if")
    async def show_what_if(request: Request) -> dict[str, Any]:
        state = controller.state
        question = asked_question(request.query_params, state)
        check_work(state, question)
        lane = lanes[request.state.visitor.role]
        return await while_connected(request, lane.ask(state, controller.sizing, question, controller.clock.now()))

    return router


def _whole(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise FieldError(name, f"expected a whole number, found '{text[:40]}'")
    return int(text)
