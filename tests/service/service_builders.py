"""A controller over HTTP without a network: simulated executors, a clock that is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httpx

from penstock.control.code_hooks import CodeSignals
from penstock.control.controller import Controller
from penstock.control.core.records import ControllerState, Policy
from penstock.control.executors.attached_applications import WithAttached
from penstock.control.executors.simulated import SimulatedExecutors, SimulatedNodes
from penstock.control.pipeline_document import described
from penstock.control.sizing import ModelSizing
from penstock.control.store.store import Store
from penstock.modelling.library import reference_library
from penstock.service.app import make_app
from penstock.service.http import Doors
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

TOKEN, READ_TOKEN, ATTACH_TOKEN = "may-do-all", "may-read", "may-attach"
WRITER = {"Authorization": f"Bearer {TOKEN}"}
READER = {"Authorization": f"Bearer {READ_TOKEN}"}
APPLICATION = {"Authorization": f"Bearer {ATTACH_TOKEN}"}


async def ask(app: Any, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    """One request as a server hands it over; nothing between us and the application."""
    plain, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(plain),
        "raw_path": plain.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), *((name.lower().encode(), one.encode()) for name, one in headers.items())],
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 1),
    }
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent: list[Any] = []

    async def receive() -> Any:
        if (message := next(asked, None)) is not None:
            return message
        await asyncio.Event().wait()  # the client stays until it has its answer
        return None

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


class Http:
    """Requests to the application itself; what it raises is raised here."""

    def __init__(self, app: Any) -> None:
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(app)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080", headers=WRITER)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, **more))

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self.request("DELETE", path, **more)

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()


@dataclass
class Served:
    controller: Controller
    clock: ManualClock
    executors: SimulatedExecutors
    nodes: SimulatedNodes
    http: Http
    app: Any
    wall: ManualClock
    """The time leases and attached applications live in."""

    def run(self, seconds: float, every: float = 0.5) -> None:
        end = self.clock.time + seconds
        while self.clock.time < end:
            self.clock.time += every
            self.controller.look()

    def call(self, method: str, path: str, body: Any = None, status: int | None = None) -> Any:
        answer = self.http.request(method, path, json=body)
        if status is not None:
            assert answer.status_code == status, answer.text
        return answer.json()

    def held(self) -> dict[str, int]:
        return {found["name"]: found["held"] for found in self.call("GET", "/v1/pipelines")}

    def close(self) -> None:
        self.http.close()
        self.controller.close()


def serve(folder: Path, nodes: int = 16, slots: int = 1, sharing: str = "fair-priority") -> Served:
    sizing = ModelSizing(reference_library(), slots)
    executors, made, clock = SimulatedExecutors(sizing, slots), SimulatedNodes(nodes, slots), ManualClock(1000.0)
    time = ManualClock(50.0)
    attached = WithAttached(executors, slots, time.now)
    controller = Controller(
        Store(f"sqlite:///{folder / 'store.db'}"),
        attached,
        made,
        sizing,
        clock,
        time,
        ControllerState(policy=Policy(sharing), unit_slots=slots),
        CodeSignals(),
    )
    controller.look()
    doors = Doors(TOKEN, READ_TOKEN, frozenset({"127.0.0.1"}), ATTACH_TOKEN)
    app = make_app(controller, doors, described, lambda name: f"of {name}", attached=attached)
    return Served(controller, clock, executors, made, Http(app), app, time)
