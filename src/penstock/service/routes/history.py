"""What happened over HTTP: decisions, events, statistics, and everything as it happens."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import select

from penstock.base.errors import nearest
from penstock.control.core.records import NodePhase, PipelineState
from penstock.control.errors import FieldError, NotFoundError
from penstock.control.metrics import ClusterGauge, Metric, Scope
from penstock.control.store import schema
from penstock.control.store.metric_history import NODES, threads_of
from penstock.service import documents
from penstock.service.http import TooManyError, found_pipeline, in_thread, page_of, paged, rows_of, since_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from prometheus_client.core import Metric as Family

    from penstock.control.controller import Controller
    from penstock.control.core.messages import StepOutcome
    from penstock.control.store.store import Store
    from penstock.service.http import Role, Sessions, Visitor


# The controller for Prometheus: its own registry, and the names and units of the one list of metrics.


LABELS = {
    Scope.PIPELINE: ["pipeline"],
    Scope.OPERATOR: ["pipeline", "operator"],
    Scope.THREAD: ["pipeline", "operator", "node", "slot"],
    Scope.PARTITION: ["pipeline", "topic", "partition"],
    Scope.NODE: ["node"],
}


class Collector:
    """Reads the state when it is asked."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Family]:
        state = self._controller.state
        latest = list(self._controller.statistics.latest(state))
        for metric in Metric:
            for scope, name in metric.families.items():
                labels = LABELS[scope]
                family = GaugeMetricFamily(name, f"{metric.help} Unit: {metric.unit}.", labels=labels)
                for subject, values in latest:
                    if subject.scope is scope and metric in values:
                        family.add_metric([str(getattr(subject, label)) for label in labels], values[metric])
                yield family
        yield _counted(ClusterGauge.PIPELINES, PipelineState, (r.state for r in state.pipelines.values()))
        yield _counted(ClusterGauge.NODES, NodePhase, (node.state for node in state.nodes.values()))
        yield GaugeMetricFamily(str(ClusterGauge.UNITS), ClusterGauge.UNITS.help, value=state.capacity)


def _counted(gauge: ClusterGauge, states: type[PipelineState] | type[NodePhase], states_now: Iterator[str]) -> Family:
    counts = Counter(map(str, states_now))
    family = GaugeMetricFamily(str(gauge), gauge.help, labels=["state"])
    for state in states:
        family.add_metric([str(state)], counts[str(state)])
    return family


def exposition(controller: Controller) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(controller))
    return generate_latest(registry)


# Server-sent events: every step of the controller, to all watchers. A slow reader misses the oldest steps; a
# stream ends with the session it was opened in.


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


def history_routes(controller: Controller, watching: Watching) -> APIRouter:
    router = APIRouter(tags=["history"])

    @router.get("/v1/decisions")
    async def decisions(request: Request) -> JSONResponse:
        table = schema.decisions
        question = select(table).where(table.c.at >= since_of(request)).order_by(table.c.number)
        if wanted := request.query_params.get("pipeline"):
            question = question.where(table.c.pipeline == wanted)
        return await rows_of(controller, request, question, documents.decision_row)

    @router.get("/v1/events")
    async def events(request: Request) -> JSONResponse:
        table = schema.events
        question = select(table).where(table.c.at >= since_of(request)).order_by(table.c.id)
        if wanted := request.query_params.get("pipeline") or request.query_params.get("subject"):
            question = question.where(table.c.subject == wanted)
        return await rows_of(controller, request, question, documents.event_row)

    @router.get("/v1/statistics/{name}")
    async def statistics(name: str, request: Request) -> JSONResponse:
        """Of a pipeline or a node; `?scope=` operator, thread or partition: of the parts of the pipeline."""
        wanted = request.query_params.get("metric")
        if wanted and wanted not in list(Metric):
            raise FieldError("metric", f"unknown metric '{wanted}'; {nearest(wanted, map(str, Metric))}")
        which, since, (first, last) = _which(controller, name, request), since_of(request), page_of(request)
        rows = await in_thread(request, _measured, controller.store, which, since, wanted or "", last + 1)
        return paged(request, rows[first:last], more=len(rows) > last)

    @router.get("/v1/watch")
    async def watch(request: Request) -> StreamingResponse:
        visitor = request.state.visitor
        if watching.is_full(visitor.role):
            raise TooManyError(f"{MAX_WATCHERS} are watching with this token already; end one of them")
        return StreamingResponse(watching.stream(visitor), media_type="text/event-stream")

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(exposition(controller), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


@dataclass(frozen=True, slots=True)
class _Which:
    """The owner of the windows, and which of their subjects are meant; `path` stands before those in full names."""

    owner: str
    path: str
    meant: Callable[[str], bool]


def _which(controller: Controller, name: str, request: Request) -> _Which:
    wanted = request.query_params.get("scope")
    if wanted is not None and wanted not in list(Scope):
        raise FieldError("scope", f"unknown scope '{wanted}'; {nearest(wanted, map(str, Scope))}")
    if wanted == Scope.NODE or (wanted is None and name in controller.state.nodes and _unknown(controller, name)):
        if name not in controller.state.nodes:
            raise NotFoundError(f"no node '{name}'; {nearest(name, controller.state.nodes)}")
        return _Which(NODES, NODES, lambda subject: subject == name)
    found_pipeline(controller, name)
    if wanted == Scope.THREAD:
        return _Which(threads_of(name), f"{name}/", bool)
    if wanted == Scope.OPERATOR:
        return _Which(name, f"{name}/", lambda subject: bool(subject) and "/" not in subject)
    if wanted == Scope.PARTITION:
        return _Which(name, f"{name}/", lambda subject: "/" in subject)
    return _Which(name, name, lambda subject: not subject)


def _measured(store: Store, which: _Which, since: float, wanted: str, most: int) -> list[dict[str, Any]]:
    """The first `most` rows, or a few more; `wanted` is a metric, or empty for all."""
    rows: list[dict[str, Any]] = []
    for at, seconds, readings in store.windows(which.owner, since):
        for subject, values in sorted(readings.items()):
            if which.meant(subject):
                path = f"{which.path}{subject}"
                rows += [
                    documents.statistics_row(path, metric, at, seconds, value)
                    for metric, value in sorted(values.items())
                    if wanted in {"", metric}
                ]
        if len(rows) >= most:
            break
    return rows


def _unknown(controller: Controller, name: str) -> bool:
    return name not in controller.state.pipelines
