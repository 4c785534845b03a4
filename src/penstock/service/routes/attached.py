"""Applications that are attached, over HTTP: they register, report, hear what they are admitted to, and are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from penstock.control.core.incoming import Submit
from penstock.control.core.records import Engine, Submission
from penstock.control.errors import ConflictError, NotFoundError
from penstock.control.executors.attached import AttachedReport
from penstock.service import documents
from penstock.service.attached_bodies import ApplicationBody, ReportBody
from penstock.service.bodies import fingerprint, read_body
from penstock.service.http import body_schema, found_pipeline, raw_body

if TYPE_CHECKING:
    from penstock.control.controller import Controller
    from penstock.control.executors.attached import WithAttached


def attached_routes(controller: Controller, attached: WithAttached) -> APIRouter:
    router = APIRouter(prefix="/v1/attached", tags=["attached"])

    @router.post("", status_code=201, openapi_extra=body_schema(ApplicationBody))
    async def register(request: Request) -> dict[str, Any]:
        body = read_body(ApplicationBody, await raw_body(request))
        await run_in_threadpool(controller.ask, Submit(_submission(body, controller.state.unit_slots)))
        return documents.pipeline(controller.state, found_pipeline(controller, body.name))

    @router.post("/{name}/reports", openapi_extra=body_schema(ReportBody))
    async def report(name: str, request: Request) -> dict[str, Any]:
        body = read_body(ReportBody, await raw_body(request))
        record = found_pipeline(controller, name)
        if record.submission.engine is not Engine.ATTACHED:
            raise ConflictError(f"pipeline '{name}' is no attached application")
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
