"""Triggers of a pipeline over HTTP: added, edited, switched by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request

from penstock.control.core.incoming import (
    AddTrigger,
    EditTrigger,
    RemoveTrigger,
    SwitchTrigger,
)
from penstock.control.core.people import trigger_of as trigger_with
from penstock.control.errors import NotFoundError
from penstock.service import bodies, documents
from penstock.service.http import body_of, body_schema, found_pipeline, in_thread, trigger_id

if TYPE_CHECKING:
    from penstock.control.controller import Controller


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
