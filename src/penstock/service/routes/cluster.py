"""The cluster over HTTP: its nodes, and how it is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from penstock.control.core.messages import SetPolicy
from penstock.service import bodies, documents
from penstock.service.documents import fairness
from penstock.service.http import Role, body_of, body_schema, in_thread, page_of, paged, since_of

if TYPE_CHECKING:
    from penstock.control.controller import Controller
    from penstock.control.health import ControllerHealth


HOUR = 3600.0


def nodes_of(controller: Controller) -> list[dict[str, Any]]:
    state = controller.state
    return documents.nodes(state, controller.nodes.seen(), documents.demands_of(state, controller.sizing))


def cluster_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["cluster"])

    @router.get("/nodes")
    async def nodes(request: Request) -> JSONResponse:
        nodes_now = await in_thread(request, nodes_of, controller)
        first, last = page_of(request)
        return paged(request, nodes_now[first:last], more=len(nodes_now) > last)

    @router.post("/nodes", status_code=202, openapi_extra=body_schema(bodies.NodesBody))
    async def add_nodes(request: Request) -> dict[str, Any]:
        body = await body_of(request, bodies.NodesBody)
        return {"nodes": await in_thread(request, controller.add_nodes, body.count, body.size)}

    @router.delete("/nodes/{name}", status_code=202)
    async def release_node(name: str, request: Request) -> dict[str, Any]:
        await in_thread(request, controller.release_node, name)
        documents = await in_thread(request, nodes_of, controller)
        return next(document for document in documents if document["name"] == name)

    @router.get("/fairness")
    async def fairness_now(request: Request) -> dict[str, Any]:
        """So far, and over time since `?since=`; without, of the last hour."""
        hour_ago = controller.clock.now() - HOUR
        since = since_of(request) if "since" in request.query_params else hour_ago
        return await in_thread(request, fairness, controller.state, controller.store, since)

    @router.get("/policy")
    async def policy() -> dict[str, Any]:
        return documents.policy(controller.state.policy)

    @router.put("/policy", openapi_extra=body_schema(bodies.PolicyBody))
    async def set_policy(request: Request) -> dict[str, Any]:
        body = await body_of(request, bodies.PolicyBody)
        asked = SetPolicy(bodies.policy_of(body, controller.state.policy))
        return documents.policy((await in_thread(request, controller.ask, asked)).policy)

    return router


# Health over HTTP, for people, monitoring and Kubernetes. Without a token only whether all is well: the trouble itself
# may name paths and people's pipelines.


STUCK_SECONDS = 120.0
"""A loop that hangs for this long does not come back by itself."""


def health_routes(controller: Controller) -> APIRouter:
    router = APIRouter(tags=["health"])

    async def health(request: Request) -> JSONResponse:
        """Whether everything is decided upon now; with a token, what is not and why."""
        known = controller.health()
        visitor = request.state.visitor
        shown = visitor is not None and visitor.role is not Role.ATTACH
        return JSONResponse({**_status(known.ok), **(details(known) if shown else {})}, _code(known.ok))

    async def live() -> JSONResponse:
        """Whether a restart would not help: the loop runs, or fails for a reason that it reports."""
        ok = is_live(controller.health())
        return JSONResponse(_status(ok), _code(ok))

    # ready is as healthy: a controller that cannot decide now should get no requests
    for path, answer in (("/health", health), ("/health/ready", health), ("/health/live", live)):
        router.add_api_route(path, answer, methods=["GET"])
        router.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)
    return router


def details(health: ControllerHealth) -> dict[str, Any]:
    return {
        "trouble": health.trouble,
        "last_step_seconds": round(health.last_step_seconds, 3),
        "loop_alive": health.loop_alive,
        "quarantined": [{"subject": subject, "why": why} for subject, why in health.quarantined],
    }


def is_live(health: ControllerHealth) -> bool:
    """Return False if a restart would help. A loop that fails at a full store still turns, and reports why."""
    return health.loop_alive and not (health.hangs and health.last_step_seconds >= STUCK_SECONDS)


def _status(ok: bool) -> dict[str, Any]:
    return {"status": "ok" if ok else "trouble"}


def _code(ok: bool) -> int:
    return 200 if ok else 503
