"""Pipelines over HTTP: submit, list, show, amend, kill, and the output of their drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from penstock.base.errors import BadInputError
from penstock.control.core.messages import AddTrigger, Amend, EditTrigger, Kill, RemoveTrigger, Submit, SwitchTrigger
from penstock.control.core.records import EngineName, Submission
from penstock.control.core.request_handlers import trigger_of as trigger_with
from penstock.control.errors import ConflictError, FieldError, NotFoundError
from penstock.control.executors.attached_applications import AttachedReport
from penstock.service import bodies, documents
from penstock.service.bodies import ApplicationBody, ReportBody, fingerprint
from penstock.service.documents import OVER
from penstock.service.http import (
    TooManyError,
    body_of,
    body_schema,
    found_pipeline,
    in_thread,
    page_of,
    paged,
    trigger_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.controller import Controller
    from penstock.control.core.records import ControllerState, PipelineRecord
    from penstock.control.executors.attached_applications import WithAttached


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


# Triggers of a pipeline over HTTP: added, edited, switched by hand.


def trigger_routes(controller: Controller) -> APIRouter:
    router = APIRouter(prefix="/v1/pipelines/{name}/triggers", tags=["triggers"])

    @router.get("")
    async def triggers(name: str) -> list[dict[str, Any]]:
        return [documents.trigger(trigger) for trigger in found_pipeline(controller, name).triggers]

    @router.post("", status_code=201, openapi_extra=body_schema(bodies.TriggerBody))
    async def add_trigger(name: str, request: Request) -> dict[str, Any]:
        # in a thread: a condition that is code is imported
        trigger = await in_thread(request, bodies.trigger_of, await body_of(request, bodies.TriggerBody))
        state = await in_thread(request, controller.ask, AddTrigger(name, trigger))
        return documents.trigger(state.pipelines[name].triggers[-1])

    @router.patch("/{number}", openapi_extra=body_schema(bodies.TriggerAmendBody))
    async def edit_trigger(name: str, number: str, request: Request) -> dict[str, Any]:
        body = await body_of(request, bodies.TriggerAmendBody)
        trigger = bodies.amended_trigger(trigger_with(found_pipeline(controller, name), trigger_id(number)), body)
        await in_thread(request, controller.ask, EditTrigger(name, trigger))
        return documents.trigger(trigger_with(found_pipeline(controller, name), trigger.id))

    @router.delete("/{number}")
    async def remove_trigger(name: str, number: str, request: Request) -> list[dict[str, Any]]:
        await in_thread(request, controller.ask, RemoveTrigger(name, trigger_id(number)))
        return [documents.trigger(trigger) for trigger in found_pipeline(controller, name).triggers]

    @router.post("/{number}/{switch}")
    async def switch_trigger(name: str, number: str, switch: str, request: Request) -> dict[str, Any]:
        if switch not in {"on", "off"}:
            raise NotFoundError(f"a trigger can be switched on or off, not '{switch}'")
        await in_thread(request, controller.ask, SwitchTrigger(name, trigger_id(number), switch == "on"))
        return documents.trigger(trigger_with(found_pipeline(controller, name), trigger_id(number)))

    return router


# Attached applications over HTTP: register, report, receive their admitted size, and be read.


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
    if record.submission.engine is not EngineName.ATTACHED:
        raise ConflictError(f"pipeline '{name}' is no attached application")
    return record


def _living(state: ControllerState) -> int:
    records = state.pipelines.values()
    return sum(record.submission.engine is EngineName.ATTACHED and record.state not in OVER for record in records)


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
        engine=EngineName.ATTACHED,
    )
