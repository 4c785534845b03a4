"""Batches from Spark's own metrics: the text its driver answers at /metrics/prometheus, sampled a few times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch
from penstock.control.attached.batches import BatchSeen
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

LINE = re.compile(
    r"^(?P<name>[A-Za-z_][\w:]*)(?:\{[^}]*\})?\s+(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$", re.ASCII
)
"""Values that are no number (NaN, +Inf) are no value."""
GAUGES = ("inputRate_total", "processingRate_total", "latency", "states_rowsTotal", "states_usedBytes")
STREAMING = re.compile(rf"_driver_spark_streaming_(?P<query>.+)_(?P<what>{'|'.join(GAUGES)})_Value$")
CORES = "metrics_executor_totalCores"
MAX_CORES = 1e6
MAX_ANSWER = 16 * 2**20
ANSWER_SECONDS = 10.0
"""For an answer as a whole."""


def answer_of(address: str) -> str:
    """Return the text that is answered at an address. Raise BadInputError if there is none, whatever answers."""
    from http.client import HTTPException  # noqa: PLC0415 - only for applications that run
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener  # noqa: PLC0415

    class ClosingRedirects(HTTPRedirectHandler):
        def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
            """Follow, or close the answer: Python forgets to, if the new address is none."""
            try:
                return super().http_error_302(req, fp, code, msg, headers)
            except ValueError:
                fp.close()
                raise

        http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    watch, received = Stopwatch(), bytearray()
    try:
        with build_opener(ProxyHandler({}), ClosingRedirects).open(address, timeout=ANSWER_SECONDS) as answer:
            while len(received) < MAX_ANSWER and (part := answer.read1(1 << 16)):
                received += part
                if watch.seconds() > ANSWER_SECONDS:
                    raise TimeoutError(f"no whole answer within {ANSWER_SECONDS:g} s")
    except HTTPError as error:
        error.close()
        raise no_metrics(address) from error
    except HTTPException as error:
        raise BadInputError(f"{address}: what answers there does not speak HTTP ({_words(error)})") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        cause = reason if isinstance(reason, TimeoutError) else error
        raise BadInputError(f"{address}: {_words(reason)}") from cause
    return received.decode("utf-8", "replace")


def _words(error: object) -> str:
    """An error in one line: it may repeat whatever was answered."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def no_metrics(address: str) -> BadInputError:
    return BadInputError(
        f"{address}: no metrics of streaming queries there; its application needs "
        "spark.sql.streaming.metricsEnabled=true, "
        "spark.metrics.conf.*.sink.prometheusServlet.class=org.apache.spark.metrics.sink.PrometheusServlet and "
        "spark.metrics.conf.*.sink.prometheusServlet.path=/metrics/prometheus"
    )


@dataclass(frozen=True, slots=True)
class MetricSample:
    """What one query said of its last batch."""

    query: str
    input_rate: float
    processing_rate: float
    latency_ms: float
    state_rows: float | None
    state_bytes: float | None


def samples_of(text: str) -> list[MetricSample]:
    """Queries without a batch yet are left out."""
    values: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        parts = LINE.match(line)
        metric = STREAMING.search(parts["name"]) if parts else None
        if parts and metric:
            values.setdefault(metric["query"], {})[metric["what"]] = float(parts["value"])
    return [
        MetricSample(
            query,
            row.get("inputRate_total", 0.0),
            row["processingRate_total"],
            row["latency"],
            row.get("states_rowsTotal"),
            row.get("states_usedBytes"),
        )
        for query, row in sorted(values.items())
        if row.get("processingRate_total", 0) > 0 and row.get("latency", 0) > 0
    ]


def cores_of(text: str) -> int | None:
    """Of /metrics/executors/prometheus: cores of all executors but the driver, or of the driver where it is alone."""
    apart, alone = 0, 0
    for line in text.splitlines():
        parts = LINE.match(line)
        if parts and parts["name"] == CORES:
            value = int(min(float(parts["value"]), MAX_CORES))
            if 'executor_id="driver"' in line:
                alone += value
            else:
                apart += value
    return apart or alone or None


def batches_of_samples(samples: Iterable[tuple[float, MetricSample]], slots: int | None) -> list[BatchSeen]:
    """rows = processing rate * seconds of the batch. A sample like the one before it is the same batch."""
    batches: list[BatchSeen] = []
    last: MetricSample | None = None
    for at, sample in samples:
        if sample == last:
            continue
        last = sample
        seconds = sample.latency_ms / 1000
        batches.append(
            BatchSeen(
                at=at - seconds,
                rows=sample.processing_rate * seconds,
                seconds=seconds,
                slots=slots,
                state_rows=sample.state_rows,
                state_bytes=sample.state_bytes,
                arrived_rate=sample.input_rate,
                query=sample.query,
            )
        )
    return batches
