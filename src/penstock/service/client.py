"""The controller from Python: the verbs as methods, over HTTP and nothing else."""

from __future__ import annotations

import getpass
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, ClusterError, PenstockError
from penstock.base.extras import missing_package
from penstock.base.files import read_text
from penstock.dataflow.builder import PipelineBuilder
from penstock.dataflow.code import pipeline_document
from penstock.dataflow.pipeline import Pipeline

try:
    import httpx
except ImportError as error:
    raise missing_package("httpx") from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

SECONDS = 60.0
USER_HEADER = "Penstock-User"
"""Header with the user's own name, stored with the request."""


class RequestRefusedError(PenstockError):
    """The controller refused a request: `status` is HTTP's, the text its reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """`with penstock.connect() as controller: controller.submit("orders", "linear", rate=100)`"""

    def __init__(self, url: str, token: str, seconds: float = SECONDS) -> None:
        """Wait for an answer for at most `seconds`."""
        self.url = url.rstrip("/")
        self.token = token
        headers = {"Authorization": f"Bearer {token}", USER_HEADER: user_name()}
        # a proxy of the environment would see the token
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=seconds, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(
        self,
        name: str,
        pipeline: str | Path | Pipeline | PipelineBuilder | dict[str, Any] | None = None,
        *,
        plan: str | Path | dict[str, Any] | None = None,
        rate: float | None = None,
        latency_ms: float | None = None,
        desired: int | None = None,
        minimum: int | None = None,
        maximum: int | None = None,
        priority: int | None = None,
        engine: str | None = None,
        load: str | float | None = None,
        elastic: bool | dict[str, Any] | None = None,
        allocator: str | None = None,
        placer: str | None = None,
        executor_memory_mb: float | None = None,
        executor_cores: float | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Submit a pipeline. To submit the same again changes nothing. `options` are those of its runs.

        `allocator` and `placer` plan it; without, those of the controller's policy. Every slot it uses is an executor
        with `executor_memory_mb` (default 1024; of a placed pipeline the least) and, if fused, `executor_cores`.
        """
        body = {
            "name": name,
            "pipeline": _plain(pipeline),
            "plan": str(plan) if isinstance(plan, Path) else plan,
            "target": _told({"rate": rate, "latency_ms": latency_ms}),
            "desired": desired,
            "minimum": minimum,
            "maximum": maximum,
            "priority": priority,
            "engine": engine,
            "load": load,
            "elastic": elastic,
            "allocator": allocator,
            "placer": placer,
            "executor_memory_mb": executor_memory_mb,
            "executor_cores": executor_cores,
            "options": dict(options) if options else None,
        }
        return self._object("POST", "/v1/pipelines", _told(body))

    def attach(
        self,
        name: str,
        *,
        rate: float | None = None,
        latency_ms: float | None = None,
        minimum: int = 1,
        maximum: int | None = None,
        priority: int | None = None,
    ) -> dict[str, Any]:
        """Register an application that runs already; `penstock.attach` does this. Sizes are of slots."""
        target = _told({"rate": rate, "latency_ms": latency_ms})
        body = {"name": name, "target": target, "minimum": minimum, "maximum": maximum, "priority": priority}
        return self._object("POST", "/v1/attached", _told(body))

    def report_attached(self, name: str, report: dict[str, Any]) -> dict[str, Any]:
        """Send an application's report; return the admitted size."""
        return self._object("POST", _at("attached", name, "reports"), report)

    def advice(self, name: str) -> dict[str, Any]:
        """The last advice of an attached application: the size it needs and the limit."""
        return self._object("GET", _at("attached", name, "advice"))

    def attached(self, name: str) -> dict[str, Any]:
        """An attached application: its target, limits and admitted size."""
        return self._object("GET", _at("attached", name))

    def leave(self, name: str) -> dict[str, Any]:
        """End the attachment of an application; `Attachment.detach` does this."""
        return self._object("DELETE", _at("attached", name))

    def kill(self, name: str) -> dict[str, Any]:
        return self._object("DELETE", _at("pipelines", name))

    def list(self) -> Any:
        return self._all("/v1/pipelines")

    def show(self, name: str) -> dict[str, Any]:
        return self._object("GET", _at("pipelines", name))

    def target(self, name: str, *, rate: float | None = None, latency_ms: float | None = None) -> dict[str, Any]:
        """Set the target. A value that is not given is removed from it."""
        return self._amend(name, target=_told({"rate": rate, "latency_ms": latency_ms}))

    def priority(self, name: str, level: int) -> dict[str, Any]:
        return self._amend(name, priority=level)

    def limits(self, name: str, *, minimum: int | None = None, maximum: int | None = None) -> dict[str, Any]:
        return self._amend(name, minimum=minimum, maximum=maximum)

    def load(self, name: str, load: str | float) -> dict[str, Any]:
        return self._amend(name, load=load)

    def change(self, name: str, **fields: Any) -> dict[str, Any]:
        """Change `target` ({"rate", "latency_ms"}), `minimum`, `maximum`, `priority` or `load`, together."""
        return self._amend(name, **fields)

    def pause(self, name: str) -> dict[str, Any]:
        return self._amend(name, paused=True)

    def resume(self, name: str) -> dict[str, Any]:
        """Run a pipeline again that was paused or has failed."""
        return self._amend(name, paused=False)

    def activate(self, name: str) -> dict[str, Any]:
        return self._amend(name, paused=False)

    def _amend(self, name: str, **fields: Any) -> dict[str, Any]:
        return self._object("PATCH", _at("pipelines", name), _told(fields))

    def trigger(self, name: str, kind: str, **options: Any) -> dict[str, Any]:
        """Add a trigger. `kind` is one that `penstock pipelines trigger add --help` lists; `options` are its fields:
        above, below, share, field, for_seconds, priority."""
        return self._object("POST", _at("pipelines", name, "triggers"), _told({"kind": kind, **options}))

    def triggers(self, name: str) -> Any:
        return self._call("GET", _at("pipelines", name, "triggers"))

    def edit_trigger(self, name: str, number: int, **options: Any) -> dict[str, Any]:
        return self._object("PATCH", _at("pipelines", name, "triggers", number), _told(options))

    def remove_trigger(self, name: str, number: int) -> Any:
        return self._call("DELETE", _at("pipelines", name, "triggers", number))

    def switch(self, name: str, number: int, *, on: bool) -> dict[str, Any]:
        """Switch a trigger on or off by hand."""
        return self._object("POST", _at("pipelines", name, "triggers", number, "on" if on else "off"))

    def policy(self, sharing: str | None = None, **options: Any) -> dict[str, Any]:
        """Return the policy; set what is given first: the sharing policy, `placer`, `allocator`, `segmenter`,
        `rescheduling`, `default_priority`."""
        if sharing is None and not options:
            return self._object("GET", "/v1/policy")
        return self._object("PUT", "/v1/policy", _told({"sharing": sharing, **options}))

    def fairness(self, since: float | None = None) -> dict[str, Any]:
        """Fairness of the cluster's division: of every pipeline and of all, so far and over time."""
        return self._object("GET", "/v1/fairness" + ("" if since is None else f"?since={since:.3f}"))

    def nodes(self) -> Any:
        return self._all("/v1/nodes")

    def add_nodes(self, count: int = 1, size: str | None = None) -> dict[str, Any]:
        return self._object("POST", "/v1/nodes", _told({"count": count, "size": size}))

    def release_node(self, name: str) -> dict[str, Any]:
        return self._object("DELETE", _at("nodes", name))

    def decisions(self, pipeline: str | None = None, since: float | None = None) -> Any:
        """Decisions and rejected alternatives, each with its reason."""
        return self._all("/v1/decisions", pipeline=pipeline, since=since)

    def events(self, pipeline: str | None = None, since: float | None = None) -> Any:
        return self._all("/v1/events", pipeline=pipeline, since=since)

    def statistics(self, name: str, metric: str | None = None, since: float | None = None) -> Any:
        return self._all(_at("statistics", name), metric=metric, since=since)

    def logs(self, name: str) -> str:
        return self._answer("GET", _at("pipelines", name, "log")).text

    def metrics(self) -> str:
        """As Prometheus reads them."""
        return self._answer("GET", "/metrics").text

    def login_code(self) -> str:
        """A code that logs one browser in, with the rights of this client's token."""
        return str(self._object("POST", "/v1/login-codes")["code"])

    def health(self) -> dict[str, Any]:
        """`status` is ok or trouble; then `trouble` and `quarantined` list all that is not decided upon."""
        answer: dict[str, Any] = self._answer("GET", "/health", expected=(503,)).json()
        return answer

    def watch(self) -> Iterator[dict[str, Any]]:
        """Every step as it happens, the present state first."""
        try:
            with self._http.stream("GET", "/v1/watch", timeout=None) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise _refusal(answer)
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _object(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = self._call(method, path, body)
        return answer

    def _all(self, path: str, **query: Any) -> Any:
        """All pages of a list."""
        answer = self._answer("GET", path, query=_told(query))
        rows: Any = answer.json()
        while "next" in answer.links:
            # only the query is taken: the token goes to no other host, and to no other path
            answer = self._answer("GET", f"{path}?{httpx.URL(answer.links['next']['url']).query.decode('ascii')}")
            rows += answer.json()
        return rows

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        return self._answer(method, path, body).json()

    def _answer(
        self, method: str, path: str, body: Any = None, query: Any = None, expected: tuple[int, ...] = ()
    ) -> httpx.Response:
        for field, value in _numbers(body):
            if not math.isfinite(value):
                raise BadInputError(f"{field}: expected a number, found {value}")
        try:
            answer = self._http.request(method, path, json=body, params=query)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if answer.status_code >= 400 and answer.status_code not in expected:
            raise _refusal(answer)
        return answer

    def _unreachable(self, error: httpx.HTTPError) -> ClusterError:
        return ClusterError(f"the controller at {self.url} does not answer: {error or type(error).__name__}")


def _numbers(body: Any, field: str = "") -> Iterator[tuple[str, float]]:
    """All of a body, by field: JSON has no way to say that one is none."""
    if isinstance(body, float):
        yield field or "body", body
    elif isinstance(body, dict):
        for name, value in body.items():
            yield from _numbers(value, f"{field}.{name}" if field else str(name))
    elif isinstance(body, list | tuple):
        for value in body:
            yield from _numbers(value, field)


def user_name() -> str:
    """Name of the user of this process; a header takes plain letters only."""
    try:
        return getpass.getuser().encode("ascii", "replace").decode()
    except (KeyError, OSError):
        return ""


def _refusal(answer: httpx.Response) -> PenstockError:
    try:
        message = str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        message = f"the controller answered {answer.status_code}"
    if answer.status_code == 400:
        return BadInputError(message)
    return RequestRefusedError(answer.status_code, message)


def _told(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _at(*parts: object) -> str:
    return "/v1/" + "/".join(_quoted(str(part)) for part in parts)


def _quoted(part: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - small, and only here

    return quote(part, safe="")


def _plain(pipeline: Any) -> Any:
    if isinstance(pipeline, PipelineBuilder):
        pipeline = pipeline.build()
    if isinstance(pipeline, Pipeline):
        return pipeline_document(pipeline)
    return str(Path(pipeline).absolute()) if _is_file(pipeline) else pipeline


def _is_file(pipeline: Any) -> bool:
    """A file of ours may lie elsewhere for the controller: it gets the whole path."""
    return isinstance(pipeline, Path) or (
        isinstance(pipeline, str) and Path(pipeline).suffix in {".yaml", ".yml", ".json"}
    )


def connect(url: str | None = None, token: str | None = None, folder: str | Path | None = None) -> Client:
    """A controller by its address and token; without, the one started on this machine. The token of that
    one is sent to no other address."""
    if url is not None and token is not None:
        return Client(url, token)
    if url is not None:
        raise BadInputError(f"token: give that of the controller at {url}; without an address, this machine's is used")
    from penstock.service.local import find_controller  # noqa: PLC0415 - it needs more than a client elsewhere has

    running = find_controller(folder)
    return Client(running.url, token or read_text(running.token_file).strip())
