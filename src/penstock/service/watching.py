"""Server-sent events: every step of the controller, to all watchers. A slow reader misses the oldest steps; a
stream ends with the session it was opened in."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.service import documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from penstock.control.controller import Controller
    from penstock.control.core.outcome import StepOutcome
    from penstock.service.sessions import Role, Sessions, Visitor

MOST_WAITING = 1000
KEEP_ALIVE_SECONDS = 15.0
MAX_WATCHERS = 100
"""Max watchers for each token."""


class Watching:
    def __init__(self, controller: Controller, sessions: Sessions) -> None:
        self._controller = controller
        self._sessions = sessions
        self._queues: dict[asyncio.Queue[str | None], Visitor] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        controller.watch(self._heard)

    def is_full(self, role: Role) -> bool:
        return Counter(visitor.role for visitor in self._queues.values())[role] >= MAX_WATCHERS

    def end(self, session: str) -> None:
        """End the streams of a session, at once."""
        self._send(None, [queue for queue, visitor in self._queues.items() if session and visitor.session == session])

    def _heard(self, step: StepOutcome) -> None:
        """Receive a step, in the controller's thread."""
        if self._queues and self._loop is not None and (text := _text(step)) is not None:
            self._loop.call_soon_threadsafe(self._send, text)

    def _send(self, text: str | None, queues: Iterable[asyncio.Queue[str | None]] | None = None) -> None:
        for queue in self._queues if queues is None else queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(text)

    async def stream(self, visitor: Visitor) -> AsyncIterator[str]:
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | None] = asyncio.Queue(MOST_WAITING)
        self._queues[queue] = visitor
        try:
            state = self._controller.state
            yield _framed(
                "state", {"pipelines": [documents.pipeline(state, record) for record in state.pipelines.values()]}
            )
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    text = ": nothing new\n\n"
                # a session may have ended otherwise too: by its time, or to make room
                if text is None or (visitor.session and self._sessions.find(visitor.session) is None):
                    return
                yield text
        finally:
            del self._queues[queue]


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
