"""The cluster over HTTP: its nodes, and how it is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from penstock.control.core.incoming import (
    SetPolicy,
)
from penstock.service import bodies, documents
from penstock.service.fairness import fairness
from penstock.service.http import body_of, body_schema, in_thread, page_of, paged, since_of

if TYPE_CHECKING:
    from penstock.control.controller import Controller

HOUR = 3600.0


def cluster_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["cluster"])

    @router.get("/nodes")
    async def nodes(request: Request) -> JSONResponse:
        nodes_now = documents.nodes(controller.state)
        first, last = page_of(request)
        return paged(request, nodes_now[first:last], more=len(nodes_now) > last)

    @router.post("/nodes", status_code=202, openapi_extra=body_schema(bodies.NodesBody))
    async def add_nodes(request: Request) -> dict[str, Any]:
        body = await body_of(request, bodies.NodesBody)
        return {"nodes": await in_thread(request, controller.add_nodes, body.count, body.size)}

    @router.delete("/nodes/{name}", status_code=202)
    async def release_node(name: str, request: Request) -> dict[str, Any]:
        await in_thread(request, controller.release_node, name)
        return next(document for document in documents.nodes(controller.state) if document["name"] == name)

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
