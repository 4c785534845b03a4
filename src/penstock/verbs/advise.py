"""`penstock.advise(...)`: what a query that was not written for Penstock needs, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.clock import now, pause
from penstock.control.attached.advice import DEFAULT_LOAD, Advice
from penstock.control.attached.advice import advise as advice_for
from penstock.control.attached.checkpoint import batches_of_checkpoint, read_end_offsets
from penstock.control.attached.endpoint import answer_of, batches_of_samples, cores_of, no_metrics, samples_of
from penstock.control.attached.event_log import batches_of_log
from penstock.control.attached.learning import LEAST_BATCHES, learn
from penstock.errors import BadInputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.control.attached.batches import BatchSeen
    from penstock.control.attached.checkpoint import Offsets

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


def advise(
    source: str | Path,
    *,
    rate: float | None = None,
    latency_ms: float | None = None,
    slots: int | None = None,
    end_offsets: str | Path | None = None,
    broker: str | None = None,
    query: str | None = None,
    load: float = DEFAULT_LOAD,
    price: float | None = None,
    seconds: float = DEFAULT_WATCH_SECONDS,
) -> list[QueryAdvice]:
    """`source` is an event log (a file, or the folder of a rolling one), a checkpoint folder, or the address of the UI
    of an application that runs (`http://driver:4040`), which is then watched for `seconds`.

    A checkpoint does not say on how many cores its query runs: give `slots`. Where its topics end now is asked of
    `broker`, or read from the file `end_offsets` (`{"topic": {"0": 17}}`). `rate` and `latency_ms` are what is wanted;
    without them what arrives, in batches of 10 s. `price` is that of a core for an hour.
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
    return _advice(address, batches, query, rate, latency_ms, load, price)


def _advice(
    source: str,
    batches: Iterable[BatchSeen],
    query: str | None,
    rate: float | None,
    latency_ms: float | None,
    load: float,
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
            advice = advice_for(model, rate=rate, latency_ms=latency_ms, load=load, price=price)
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
    from penstock.control.attached.broker import end_offsets  # noqa: PLC0415 - needs the extra `kafka`
    from penstock.control.attached.checkpoint import last_offsets  # noqa: PLC0415

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
