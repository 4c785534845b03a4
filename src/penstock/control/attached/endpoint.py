"""Batches from Spark's own metrics: the text its driver answers at /metrics/prometheus, sampled a few times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.control.attached.batches import BatchSeen

if TYPE_CHECKING:
    from collections.abc import Iterable

LINE = re.compile(r"^(?P<name>[A-Za-z_][\w:]*)(?:\{[^}]*\})?\s+(?P<value>[-+0-9.eE]+|NaN)\s*$")
GAUGES = ("inputRate_total", "processingRate_total", "latency", "states_rowsTotal", "states_usedBytes")
STREAMING = re.compile(rf"_driver_spark_streaming_(?P<query>.+)_(?P<what>{'|'.join(GAUGES)})_Value$")
CORES = "metrics_executor_totalCores"


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
        if parts and metric and parts["value"] != "NaN":
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
        if line.startswith(CORES):
            value = int(float(line.rsplit(" ", 1)[-1]))
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
