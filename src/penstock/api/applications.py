"""Attach to a Spark application that was not written for Penstock, and advise on its executors."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import now, pause
from penstock.base.errors import BadInputError, nearest
from penstock.base.files import read_text
from penstock.base.former_names import former_keywords
from penstock.control.attached.advice import CALM_SECONDS, DEFAULT_UTILISATION, Advice, SizingGoal
from penstock.control.attached.advice import advise as advice_for
from penstock.control.attached.attachment import Attachment
from penstock.control.attached.batch_sources import (
    answer_of,
    batches_of_checkpoint,
    batches_of_log,
    batches_of_samples,
    cores_of,
    no_metrics,
    read_end_offsets,
    samples_of,
)
from penstock.control.attached.query_model import LEAST_BATCHES, learn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.control.attached.batch_sources import Offsets
    from penstock.control.attached.query_model import BatchSeen
    from penstock.service.attached_link import ControllerLink


LOCAL = "local"
TOKEN_FILE = "PENSTOCK_ATTACH_TOKEN_FILE"  # noqa: S105 - a name
"""Environment variable: the file with the token of an application's controller."""
ANSWER_SECONDS = 5.0
"""A controller that does not answer in so long is taken to be away."""


def attach(
    spark: Any,
    *,
    name: str,
    target: float | Mapping[str, float] | None = None,
    minimum: int = 1,
    maximum: int | None = None,
    act: bool = True,
    calm_seconds: float = CALM_SECONDS,
    controller: str | None = None,
    token: str | None = None,
    priority: int | None = None,
) -> Attachment:
    """From now on the queries of the session are watched, their model is learned, and executors follow what arrives.

    `target` is a rate in rows/s, or `{"rate": ..., "latency_ms": ...}`. Executors come at once when they are needed and
    go when fewer were enough for `calm_seconds`, from `minimum` to `maximum`; queries are never restarted. With `act`
    False, or where Spark's settings do not let executors come and go (`Attachment.why_not`), there is advice only:
    `Attachment.advice`. The session must have been made with `penstock.attachable_settings(n)` to follow.

    `controller` is the address of a controller, or `"local"`: the one started here. `token` is its token
    for applications; without, it is read from the file that PENSTOCK_ATTACH_TOKEN_FILE names. The controller lists the
    application among its pipelines, with `priority`, and admits executors: the application has what it needs or what is
    admitted, whichever is less. One that is away changes nothing.
    """
    if not name:
        raise BadInputError("name: expected a name for the application")
    from penstock.spark.attached_application import SparkApplication, has_named_slots  # noqa: PLC0415 - needs Spark

    wanted = _wanted(target, minimum, maximum, calm_seconds)
    application = SparkApplication(spark, pinned=controller is not None and has_named_slots(spark))
    link = None if controller is None else _link(controller, token, name, wanted, application.cores, priority)
    return Attachment(name, application, wanted, act=act, link=link).start()


def attachable_settings(executors: int = 1, *, by_controller: bool = False) -> dict[str, str]:
    """Spark settings for a session whose executors are to follow: it starts with so many, of one core each.

    `by_controller`: on the cluster of a controller, which says on which slots: it starts with none, and
    those come once it is attached."""
    if executors < 1:
        raise BadInputError(f"executors: expected at least 1, found {executors}")
    from penstock.spark.attached_application import attachable_settings as settings  # noqa: PLC0415 - needs Spark

    return settings(0, by_slot=True) if by_controller else settings(executors)


def _link(
    controller: str, token: str | None, name: str, wanted: SizingGoal, cores: int, priority: int | None
) -> ControllerLink:
    from penstock.service.attached_link import ControllerLink  # noqa: PLC0415 - needs the extra `control`
    from penstock.service.client import Client  # noqa: PLC0415

    if token is None and (file := os.environ.get(TOKEN_FILE)):
        token = read_text(Path(file)).strip()
    if controller == LOCAL:
        from penstock.service.local import find_controller  # noqa: PLC0415

        running = find_controller()
        controller, token = running.url, token or read_text(running.attach_token_file).strip()
    if token is None:
        raise BadInputError(
            f"token: a controller answers only to its token; give its attach token, or its file by {TOKEN_FILE}"
        )
    return ControllerLink(Client(controller, token, ANSWER_SECONDS), name, wanted, cores, priority)


def _wanted(
    target: float | Mapping[str, float] | None, minimum: int, maximum: int | None, calm_seconds: float
) -> SizingGoal:
    if target is None or isinstance(target, int | float):
        target = {} if target is None else {"rate": float(target)}
    unknown = set(target) - {"rate", "latency_ms"}
    if unknown:
        raise BadInputError(f"target: unknown '{min(unknown)}'; known: rate, latency_ms")
    for what, value in target.items():
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise BadInputError(f"target: {what}: expected a number above 0, found {value!r}")
    return SizingGoal(target.get("rate"), target.get("latency_ms"), minimum, maximum, calm_seconds)


DEFAULT_WATCH_SECONDS = 30.0
MAX_WATCH_SECONDS = 86_400.0
MAX_SLOTS = 1_000_000


@dataclass(frozen=True, slots=True)
class QueryAdvice:
    """Of one query of the application."""

    query: str
    advice: Advice

    def document(self) -> dict[str, Any]:
        return {"query": self.query, **self.advice.document()}


@former_keywords(load="utilisation")
def advise(
    source: str | Path,
    *,
    rate: float | None = None,
    latency_ms: float | None = None,
    slots: int | None = None,
    end_offsets: str | Path | None = None,
    broker: str | None = None,
    query: str | None = None,
    utilisation: float = DEFAULT_UTILISATION,
    price: float | None = None,
    seconds: float = DEFAULT_WATCH_SECONDS,
) -> list[QueryAdvice]:
    """`source` is an event log (a file, or the folder of a rolling one), a checkpoint folder, or the address of the UI
    of an application that runs (`http://driver:4040`), which is then watched for `seconds`.

    A checkpoint does not say on how many cores its query runs: give `slots`. Where its topics end now is asked of
    `broker`, or read from the file `end_offsets` (`{"topic": {"0": 17}}`). `rate` and `latency_ms` are what is wanted;
    without them what arrives, in batches of 10 s. Slots are sized for that target
    `utilisation`. `price` is that of a core for an hour.
    """
    if slots is not None and not 1 <= slots <= MAX_SLOTS:
        raise BadInputError(f"slots: expected 1 to {MAX_SLOTS:,}, found {slots:.6g}")
    if not 0 <= seconds <= MAX_WATCH_SECONDS:
        raise BadInputError(f"seconds: expected 0 to {MAX_WATCH_SECONDS:g}, found {seconds:g}")
    address = str(source)
    if address.startswith(("http://", "https://")):
        batches = watch_application(address, seconds, slots)
    elif (Path(source) / "offsets").is_dir():
        batches = _from_checkpoint(Path(source), slots, end_offsets, broker)
    elif Path(source).exists():
        batches = _with_slots(batches_of_log(Path(source)), slots)
    else:
        raise BadInputError(f"{source}: no event log, no checkpoint folder and no address of an application")
    return _advice(address, batches, query, rate, latency_ms, utilisation, price)


def _advice(
    source: str,
    batches: Iterable[BatchSeen],
    query: str | None,
    rate: float | None,
    latency_ms: float | None,
    utilisation: float,
    price: float | None,
) -> list[QueryAdvice]:
    by_query: dict[str, list[BatchSeen]] = {}
    for batch in batches:
        by_query.setdefault(batch.query, []).append(batch)
    if query is not None and query not in by_query:
        raise BadInputError(f"{source}: no query '{query}'; {nearest(query, by_query)}")
    queries = []
    for name, seen in by_query.items():
        model = learn(seen) if query in (None, name) else None
        if model is not None:
            advice = advice_for(model, rate=rate, latency_ms=latency_ms, utilisation=utilisation, price=price)
            queries.append(QueryAdvice(name, advice))
    if not queries:
        count = sum(batch.rows > 0 for seen in by_query.values() for batch in seen)
        raise BadInputError(
            f"{source}: {count} batches with rows; at least {LEAST_BATCHES} of a query are needed, its first aside"
        )
    return queries


def _with_slots(batches: Iterable[BatchSeen], slots: int | None) -> list[BatchSeen]:
    return [batch if slots is None else replace(batch, slots=slots) for batch in batches]


def _from_checkpoint(
    folder: Path, slots: int | None, end_offsets: str | Path | None, broker: str | None
) -> list[BatchSeen]:
    if slots is None:
        raise BadInputError(f"{folder}: a checkpoint does not say on how many cores its query runs; give slots=")
    if end_offsets is not None and broker is not None:
        raise BadInputError("end_offsets=: give either a file or a broker")
    end = None if end_offsets is None else read_end_offsets(Path(end_offsets))
    batches = batches_of_checkpoint(folder, slots, end)
    if broker is not None:
        batches = batches_of_checkpoint(folder, slots, _ends(broker, folder))
    return batches


def _ends(broker: str, folder: Path) -> Offsets:
    """Where the topics of the checkpoint end, as the broker says."""
    from penstock.control.attached.batch_sources import last_offsets  # noqa: PLC0415
    from penstock.control.attached.kafka_offsets import end_offsets  # noqa: PLC0415 - needs the extra `kafka`

    return end_offsets(broker, last_offsets(folder))


def watch_application(address: str, seconds: float, slots: int | None) -> list[BatchSeen]:
    """Samples /metrics/prometheus of the driver twice a second. A driver that is too busy to answer is asked again."""
    base = address.rstrip("/")
    samples: dict[str, list[Any]] = {}
    cores, failure = slots, None
    until = now() + seconds
    while True:
        at = now()
        try:
            for sample in samples_of(answer_of(f"{base}/metrics/prometheus")):
                samples.setdefault(sample.query, []).append((at, sample))
            cores = cores or cores_of(answer_of(f"{base}/metrics/executors/prometheus"))
        except BadInputError as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
            failure = error
        if now() >= until:
            break
        pause(0.5)
    if not samples:
        raise failure or no_metrics(address)
    return [batch for seen in samples.values() for batch in batches_of_samples(seen, cores)]
