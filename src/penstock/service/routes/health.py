"""Health over HTTP, for people, monitoring and Kubernetes. Without a token only whether all is well: the trouble itself
may name paths and people's pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from penstock.service.sessions import Role

if TYPE_CHECKING:
    from penstock.control.controller import Controller
    from penstock.control.health import ControllerHealth

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
