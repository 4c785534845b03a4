"""Applications that are attached, over HTTP: they register, report, hear what they are admitted to, and are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request

from penstock.control.core.incoming import Kill, Submit
from penstock.control.core.records import Engine, Submission
from penstock.control.errors import ConflictError, NotFoundError
from penstock.control.executors.attached import AttachedReport
from penstock.service import documents
from penstock.service.attached_bodies import ApplicationBody, ReportBody
from penstock.service.bodies import fingerprint
from penstock.service.fairness import OVER
from penstock.service.http import TooManyError, body_of, body_schema, in_thread

if TYPE_CHECKING:
    from penstock.control.controller import Controller
    from penstock.control.core.records import ControllerState, PipelineRecord
    from penstock.control.executors.attached import WithAttached


MAX_APPLICATIONS = 1000
"""Max live applications: holders of the token of applications cannot fill the store with them."""


def attached_routes(controller: Controller, attached: WithAttached) -> APIRouter:
    router = APIRouter(prefix="/v1/attached", tags=["attached"])

    @router.post("", status_code=201, openapi_extra=body_schema(ApplicationBody))
    async def register(request: Request) -> dict[str, Any]:
        body = await body_of(request, ApplicationBody)
        if body.name not in controller.state.pipelines and _living(controller.state) >= MAX_APPLICATIONS:
            raise TooManyError(f"{MAX_APPLICATIONS} applications are attached already; detach one of them")
        await in_thread(request, controller.ask, Submit(_submission(body, controller.state.unit_slots)))
        return documents.pipeline(controller.state, _application(controller, body.name))

    @router.get("/{name}")
    async def application(name: str) -> dict[str, Any]:
        """Its target, limits and priority, and what it is admitted to."""
        return documents.pipeline(controller.state, _application(controller, name))

    @router.delete("/{name}")
    async def leave(name: str, request: Request) -> dict[str, Any]:
        _application(controller, name)
        await in_thread(request, controller.ask, Kill(name))
        return documents.pipeline(controller.state, _application(controller, name))

    @router.post("/{name}/reports", openapi_extra=body_schema(ReportBody))
    async def report(name: str, request: Request) -> dict[str, Any]:
        body = await body_of(request, ReportBody)
        _application(controller, name)
        advice = {} if body.advice is None else body.advice.model_dump()
        admission = attached.report(
            name, AttachedReport(body.held, body.wanted, body.why, body.values.known(), body.serial, body.nodes, advice)
        )
        slots = [[slot.node, slot.number] for slot in admission.slots]
        return {"serial": admission.serial, "admitted": len(slots), "slots": slots}

    @router.get("/{name}/advice")
    async def advice(name: str) -> dict[str, Any]:
        known = attached.advice_of(name)
        if known is None:
            raise NotFoundError(f"no attached application '{name}' that has reported")
        return dict(known)

    return router


def _application(controller: Controller, name: str) -> PipelineRecord:
    """Names no other: the holder of an application's token need not know who else there is."""
    record = controller.state.pipelines.get(name)
    if record is None:
        raise NotFoundError(f"no attached application '{name}'; it has to register first")
    if record.submission.engine is not Engine.ATTACHED:
        raise ConflictError(f"pipeline '{name}' is no attached application")
    return record


def _living(state: ControllerState) -> int:
    records = state.pipelines.values()
    return sum(record.submission.engine is Engine.ATTACHED and record.state not in OVER for record in records)


def _submission(body: ApplicationBody, unit_slots: int) -> Submission:
    definition = {
        "name": body.name,
        "operators": {"input": {"kind": "source"}, "queries": {}, "output": {"kind": "sink"}},
        "streams": [{"from": "input", "to": "queries"}, {"from": "queries", "to": "output"}],
    }
    return Submission(
        name=body.name,
        pipeline="attached",
        definition=definition,
        fingerprint=fingerprint(definition),
        target=body.target.target(),
        minimum=-(-body.minimum // unit_slots),
        maximum=None if body.maximum is None else -(-body.maximum // unit_slots),
        priority=body.priority,
        engine=Engine.ATTACHED,
    )
