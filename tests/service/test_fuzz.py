"""Ten thousand requests nobody would make on purpose: each is answered below 500, and none without a token."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from service_builders import READER, WRITER, Served, ask, serve

if TYPE_CHECKING:
    from pathlib import Path

REQUESTS = 10_000
# fmt: off
WORDS = [
    "a", "linear", "", " ", "..", "n1", "0", "1", "-1", "on", "off", "é", "\ud7ff", "%2f", "NaN", "null", "x" * 300,
    "arrival-rate", "fair-priority", "dynamic-priority", "steps:1x2", "trace:/dev/zero", "math:nothing",
]
KEYS = [
    "name", "pipeline", "plan", "target", "rate", "latency_ms", "desired", "minimum", "maximum", "priority", "engine",
    "load", "paused", "kind", "above", "below", "share", "field", "for_seconds", "enabled", "sharing", "rescheduling",
    "count", "size", "token", "code", "who", "odd", "held", "wanted", "why", "serial", "nodes", "values", "advice",
]
PATHS = [
    "/v1/pipelines", "/v1/pipelines/{}", "/v1/pipelines/{}/triggers", "/v1/pipelines/{}/triggers/{}",
    "/v1/pipelines/{}/triggers/{}/{}", "/v1/pipelines/{}/log", "/v1/nodes", "/v1/nodes/{}", "/v1/policy",
    "/", "/pipeline", "/assets/{}", "/login", "/logout", "/v1/login-codes", "/v1/views/start", "/v1/views/fleet",
    "/v1/views/pipeline?name={}", "/v1/views/series?name={}", "/v1/views/cluster", "/v1/views/decisions",
    "/v1/views/what-if?pipeline={}&rate={}&nodes={}&seconds=20", "/v1/decisions", "/v1/events",
    "/v1/statistics/{}", "/metrics", "/health", "/openapi.json", "/{}", "/v1/{}",
    "/v1/attached", "/v1/attached/{}/reports", "/v1/attached/{}/advice",
]
SOUND: list[dict[str, Any]] = [
    {"name": "a", "pipeline": "linear", "desired": 3}, {"name": "b", "pipeline": "diamond", "target": {"rate": 20}},
    {"priority": 1}, {"paused": True}, {"paused": False}, {"target": {"rate": 40}}, {"load": "10"},
    {"kind": "arrival-rate", "above": 5}, {"enabled": False}, {"sharing": "dynamic-priority"}, {"count": 1},
    {"name": "a", "minimum": 1}, {"name": "1"}, {"held": 1, "wanted": 2, "why": "", "values": {"rate": 3.0}},
]
# fmt: on
QUERIES = ["since", "limit", "offset", "pipeline", "metric", "name", "rate", "nodes", "policy", "seconds", "before"]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "ODD"]


def value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(10 if depth < 3 else 7)
    if kind < 3:
        return draw.choice(WORDS)
    if kind == 3:
        return draw.choice([0, 1, -1, 2, 7, 10**9, 10**30, 2**63])
    if kind == 4:
        return draw.choice([0.0, 0.5, -1.5, 1e308, 1e-308])
    if kind < 7:
        return draw.choice([None, True, False])
    if kind == 7:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(KEYS): value(draw, depth + 1) for _ in range(draw.randrange(6))}


def content(draw: random.Random) -> bytes:
    kind = draw.randrange(12)
    if kind == 0:
        return draw.randbytes(draw.randrange(60))
    if kind == 1:
        return b"[" * draw.randrange(2000)
    if kind == 2:
        return b'{"name": "a", "name": "b"}'
    if kind == 3:
        return b'{"target": {"rate": NaN}}'
    body = value(draw)
    if draw.random() < 0.5:
        # something that is right, spoilt a little or not at all
        more = body if isinstance(body, dict) and draw.random() < 0.3 else {}
        body = {**draw.choice(SOUND), **more}
    return json.dumps(body).encode("utf-8", "surrogatepass")


async def ask_all(served: Served, draw: random.Random) -> Counter[int]:
    statuses: Counter[int] = Counter()
    for number in range(REQUESTS):
        path = draw.choice(PATHS)
        while "{}" in path:
            path = path.replace("{}", draw.choice(["a", "b", "1", _quoted(draw.choice(WORDS))]), 1)
        if draw.random() < 0.3:
            path += f"{'&' if '?' in path else '?'}{draw.choice(QUERIES)}={_quoted(draw.choice(WORDS))}"
        method = draw.choice(METHODS)
        headers = draw.choice([WRITER, WRITER, WRITER, READER, {"Authorization": draw.choice(["", "Bearer x"])}])
        status, body = await ask(served.app, method, path, headers, content(draw))
        statuses[status] += 1
        assert status < 500, (method, path, body)
        healthy = path.partition("?")[0] == "/health" and method in {"GET", "HEAD"}
        if headers not in (WRITER, READER) and not healthy:
            # a form that says nothing understandable is told so; it opens nothing either
            assert status == 401 or (status == 400 and path.startswith("/login")), (method, path)
        if status == 400:
            assert set(json.loads(body)) == {"error", "field"}
        if number % 100 == 0:
            served.run(1.0)
    return statuses


def test_ten_thousand_requests(tmp_path: Path) -> None:
    served = serve(tmp_path, nodes=8)
    statuses = asyncio.run(ask_all(served, random.Random(16)))  # noqa: S311 - the same requests every time
    assert statuses.total() == REQUESTS
    # it was not all refused at the door
    assert set(statuses) >= {200, 201, 400, 401, 403, 404, 405, 409}
    served.run(10)
    assert served.call("GET", "/health", None, 200)["status"] == "ok"
    served.close()


def _quoted(word: str) -> str:
    return quote(word, safe="")
