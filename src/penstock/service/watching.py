"""Server-sent events: every step of the controller, to whoever watches. Who reads too slowly misses the oldest."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from penstock.service import documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.control.controller import Controller
    from penstock.control.core.outcome import StepOutcome

MOST_WAITING = 1000
KEEP_ALIVE_SECONDS = 15.0
MOST_WATCHERS = 100


class Watching:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._queues: set[asyncio.Queue[str]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        controller.watch(self._heard)

    @property
    def full(self) -> bool:
        return len(self._queues) >= MOST_WATCHERS

    def _heard(self, step: StepOutcome) -> None:
        """In the controller's thread."""
        if self._queues and self._loop is not None and (text := _text(step)) is not None:
            self._loop.call_soon_threadsafe(self._send, text)

    def _send(self, text: str) -> None:
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(text)

    async def stream(self) -> AsyncIterator[str]:
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self._queues.add(queue)
        try:
            state = self._controller.state
            yield _framed(
                "state", {"pipelines": [documents.pipeline(state, record) for record in state.pipelines.values()]}
            )
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    yield ": nothing new\n\n"
        finally:
            self._queues.discard(queue)


def _text(step: StepOutcome) -> str | None:
    if not (step.events or step.decisions or step.measured):
        return None
    changed = {event.subject for event in step.events} | {decision.pipeline for decision in step.decisions}
    state = step.state
    return _framed(
        "step",
        {
            "events": [documents.event(event) for event in step.events],
            "decisions": [documents.decision(decision) for decision in step.decisions],
            "pipelines": [
                documents.pipeline(state, record) for name, record in state.pipelines.items() if name in changed
            ],
        },
    )


def _framed(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"
