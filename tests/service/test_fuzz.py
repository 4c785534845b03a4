"""Requests nobody would make on purpose, and sound ones with extreme values: each is answered below 500, none without a
token, and pipelines that come in between are decided upon all the while. `--long` makes ten times as many."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from service_builders import APPLICATION, READER, WRITER, Served, ask, serve

from penstock.planning.registry import SHARERS

if TYPE_CHECKING:
    from pathlib import Path

REQUESTS = {"any": 4_000, "sound": 1_500}
LONG = 10
"""Times as many."""
CANARY_EVERY = 50
# fmt: off
WORDS = [
    "a", "linear", "", " ", "..", "n1", "0", "1", "-1", "on", "off", "é", "\ud7ff", "%2f", "NaN", "null", "x" * 300,
    "arrival-rate", "fair-priority", "dynamic-priority", "steps:1x2", "trace:/dev/zero", "math:nothing",
    ".", "sys:exit", ".x:y", "json:loads", "1e8", "steps:1x1e300", "\x00", "\u202e", "a" * 200, "订" * 200, "' OR 1=1",
]
KEYS = [
    "name", "pipeline", "plan", "target", "rate", "latency_ms", "desired", "minimum", "maximum", "priority", "engine",
    "load", "paused", "kind", "above", "below", "share", "field", "for_seconds", "enabled", "sharing", "rescheduling",
    "count", "size", "elastic", "veto", "forecast", "excluded_hours", "token", "code", "who", "odd", "held", "wanted",
    "why", "serial", "nodes", "values", "advice",
]
PATHS = [
    "/v1/pipelines", "/v1/pipelines/{}", "/v1/pipelines/{}/triggers", "/v1/pipelines/{}/triggers/{}",
    "/v1/pipelines/{}/triggers/{}/{}", "/v1/pipelines/{}/log", "/v1/nodes", "/v1/nodes/{}", "/v1/policy",
    "/", "/pipeline", "/assets/{}", "/login", "/logout", "/v1/login-codes", "/v1/views/start", "/v1/views/fleet",
    "/v1/views/pipeline?name={}", "/v1/views/series?name={}", "/v1/views/cluster", "/v1/views/decisions",
    "/v1/views/what-if?pipeline={}&rate={}&nodes={}&seconds=20", "/v1/decisions", "/v1/events",
    "/v1/statistics/{}", "/metrics", "/health", "/health/live", "/health/ready", "/openapi.json", "/{}", "/v1/{}",
    "/v1/fairness", "/v1/attached/{}", "/v1/views/health", "/docs",
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


def any_request(draw: random.Random) -> tuple[str, str, bytes]:
    path = draw.choice(PATHS)
    while "{}" in path:
        path = path.replace("{}", draw.choice(["a", "b", "1", quote(draw.choice(WORDS), safe="")]), 1)
    if draw.random() < 0.3:
        path += f"{'&' if '?' in path else '?'}{draw.choice(QUERIES)}={quote(draw.choice(WORDS), safe='')}"
    return draw.choice(METHODS), path, content(draw)


AMOUNTS = [1e-12, 1e-7, 0.001, 0.5, 1, 3, 20, 1e3, 1e6, 1e9, 1e12, 5e-324, 1e308, 0, -1]
COUNTS = [1, 1, 2, 3, 7, 100, 10**4, 10**6, 0, -1]
NAMES = ["a", "b", "c", "d", "x" * 200, "订" * 200, "!" * 86, "..", "a b", "'", "<b>", "\u202e"]
LOADS = ["10", "0", "200", "1e8", "1e300", "steps:5x10,5x1000", "steps:1x0", "wave:1,2,3", "10..20", "-1", 33.0, 1e12]
CODE = ["sys:exit", ".x:y", "json:loads", "json:nothing", "time:sleep", "a:b:c", "operator:truth"]


def maybe(draw: random.Random, **choices: list[Any]) -> dict[str, Any]:
    return {name: draw.choice(values) for name, values in choices.items() if draw.random() < 0.35}


def elastic(draw: random.Random) -> Any:
    return (
        draw.choice([True, False, None])
        if draw.random() < 0.3
        else maybe(
            draw,
            enabled=[True, False],
            advise_only=[True, False],
            catch_up_seconds=AMOUNTS,
            shrink_after_seconds=AMOUNTS,
            shrink_most=AMOUNTS,
            worth_seconds=AMOUNTS,
            ahead_seconds=AMOUNTS,
            min_utilisation=AMOUNTS,
            max_utilisation=AMOUNTS,
            excluded_hours=[[], [1, 2], list(range(24)), [0, 0], [24]],
            forecast=["last", "seasonal", "odd", "level"],
            veto=CODE,
        )
    )


def sizes(draw: random.Random) -> dict[str, Any]:
    target = maybe(draw, rate=AMOUNTS, latency_ms=AMOUNTS)
    known = maybe(draw, minimum=COUNTS, maximum=COUNTS, priority=[1, 2, 3, 1000], load=LOADS)
    return {**known, "target": target, **({"elastic": elastic(draw)} if draw.random() < 0.4 else {})}


def sound_request(draw: random.Random) -> tuple[str, str, bytes]:
    """Of a shape the controller takes, with values at the edge of what it takes."""
    name, kind = draw.choice(NAMES), draw.randrange(16)
    at = f"/v1/pipelines/{quote(name, safe='')}"
    body: Any = None
    if kind < 4:
        pipeline = draw.choice(["linear", "diamond", "star", "traffic", "nothing", "json:loads"])
        body = {"name": name, "pipeline": pipeline, **sizes(draw), **maybe(draw, desired=COUNTS)}
        method, path = "POST", "/v1/pipelines"
    elif kind < 7:
        body, method, path = {**sizes(draw), **maybe(draw, paused=[True, False])}, "PATCH", at
    elif kind == 7:
        method, path = "DELETE", draw.choice([at, at, f"/v1/attached/{quote(name, safe='')}"])
    elif kind == 8:
        body = {"kind": draw.choice(["arrival-rate", "lag", "batch-share", *CODE])}
        body |= maybe(draw, above=AMOUNTS, below=AMOUNTS, share=AMOUNTS, field=["x", "é"], for_seconds=AMOUNTS)
        method, path = "POST", f"{at}/triggers"
    elif kind == 9:
        method, path = "POST", f"{at}/triggers/{draw.choice([0, 1, 2, 3])}/{draw.choice(['on', 'off'])}"
    elif kind == 10:
        body = {"sharing": draw.choice(SHARERS.names()), **maybe(draw, rescheduling=["live", "documented"])}
        method, path = "PUT", "/v1/policy"
    elif kind == 11:
        method, path = draw.choice([("POST", "/v1/nodes"), ("DELETE", f"/v1/nodes/n{draw.randrange(1, 9)}")])
        body = {"count": draw.choice([1, 2])} if method == "POST" else None
    elif kind == 12:
        body = {"name": name, **maybe(draw, minimum=COUNTS, maximum=COUNTS, priority=[1, 1000])}
        method, path = "POST", "/v1/attached"
    elif kind < 15:
        values = maybe(draw, rate=AMOUNTS, offered_rate=AMOUNTS, backlog=AMOUNTS, latency_ms=AMOUNTS, busy=AMOUNTS)
        body = {"held": draw.choice(COUNTS), "wanted": draw.choice(COUNTS), "why": "", "values": values}
        body |= maybe(draw, serial=[-1, 0, 1, 2**53], nodes=[{}, {"n1": 1}, {"n1": 10**6, "odd": 3}])
        method, path = "POST", f"/v1/attached/{quote(name, safe='')}/reports"
    else:
        query = f"rate={draw.choice(AMOUNTS)}&nodes={draw.choice(COUNTS)}&seconds={draw.choice([10, 11, 1800])}"
        method, path = (
            "GET",
            draw.choice([f"/v1/views/what-if?pipeline={quote(name, safe='')}&{query}", at, "/v1/pipelines"]),
        )
    return method, path, b"" if body is None else json.dumps(body).encode()


async def ask_all(served: Served, draw: random.Random, kind: str, count: int) -> Counter[int]:
    statuses: Counter[int] = Counter()
    made = any_request if kind == "any" else sound_request
    holders = [WRITER, WRITER, WRITER, READER, APPLICATION, {"Authorization": draw.choice(["", "Bearer x"])}]
    for number in range(count):
        method, path, body = made(draw)
        headers = draw.choice(holders) if kind == "any" else WRITER
        status, answer = await ask(served.app, method, path, headers, body)
        statuses[status] += 1
        assert status < 500, (number, method, path, body, answer)
        healthy = path.partition("?")[0].startswith("/health") and method in {"GET", "HEAD"}
        if headers not in (WRITER, READER, APPLICATION) and not healthy:
            # a form that says nothing understandable is told so; it opens nothing either
            assert status in {401, 413, 429} or (status == 400 and path.startswith("/login")), (method, path)
        if status == 400:
            assert set(json.loads(answer)) == {"error", "field"}
        if number % CANARY_EVERY == 0:
            await canary(served, number)
    return statuses


async def canary(served: Served, number: int) -> None:
    """A pipeline that comes now is decided upon, and one that is killed goes."""
    name = f"canary-{number}"
    body = json.dumps({"name": name, "pipeline": "linear", "desired": 1, "priority": 1}).encode()
    status, answer = await ask(served.app, "POST", "/v1/pipelines", WRITER, body)
    assert status == 201, answer
    served.run(2.0)
    status, answer = await ask(served.app, "GET", f"/v1/pipelines/{name}", WRITER, b"")
    assert (status, json.loads(answer)["state"] == "submitted") == (200, False), (number, answer)
    assert (await ask(served.app, "DELETE", f"/v1/pipelines/{name}", WRITER, b""))[0] == 200
    status, answer = await ask(served.app, "GET", "/health", WRITER, b"")
    assert status == 200, (number, answer)


@pytest.mark.parametrize("kind", ["any", pytest.param("sound", marks=pytest.mark.unproven("ends the loop still"))])
@pytest.mark.parametrize("seed", [16])
def test_requests_of_every_shape(tmp_path: Path, pytestconfig: pytest.Config, kind: str, seed: int) -> None:
    served = serve(tmp_path, nodes=8, slots=2)
    count = REQUESTS[kind] * (LONG if pytestconfig.getoption("--long") else 1)
    statuses = asyncio.run(ask_all(served, random.Random(seed), kind, count))  # noqa: S311 - the same every time
    assert statuses.total() == count
    # it was not all refused at the door
    assert set(statuses) >= ({200, 201, 400, 401, 403, 404, 405, 409} if kind == "any" else {200, 201, 400, 404, 409})
    served.run(10)
    assert served.call("GET", "/health", None, 200)["status"] == "ok"
    served.close()
