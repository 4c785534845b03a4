"""Decisions, newest first, each with its reason, rejected alternatives, expected result and measured result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from penstock.control.metrics import WINDOW_SECONDS, Metric
from penstock.control.store import schema
from penstock.control.store.windows import Means
from penstock.service import documents

if TYPE_CHECKING:
    from penstock.control.store.store import Store

OUTCOME_SECONDS = 60.0
"""The measured result of a decision is the mean over this long, from when its first row was through."""
AFTERWARDS = (Metric.RATE, Metric.HELD, Metric.LATENCY_MS, Metric.BACKLOG, Metric.OFFERED_RATE)


def decision_log(
    store: Store, pipeline: str = "", kind: str = "", before: int | None = None, most: int = 50
) -> list[dict[str, Any]]:
    """`before` is the number of a decision: only older ones."""
    table = schema.decisions
    question = select(table).order_by(table.c.number.desc()).limit(most)
    if pipeline:
        question = question.where(table.c.pipeline == pipeline)
    if kind:
        question = question.where(table.c.kind == kind)
    if before is not None:
        question = question.where(table.c.number < before)
    rows = store.read(question)
    return [{**documents.decision_row(row), "did": _did(store, row)} for row in rows]


def _did(store: Store, row: dict[str, Any]) -> dict[str, float] | None:
    """Measured result of a decision; None if it changed no share, or nothing was measured after it yet."""
    if not row["pipeline"] or row["kind"] in {"priority", "scale", "nothing"}:
        return None
    start = row["at"] + sum((row["overhead"] or {}).values()) + WINDOW_SECONDS
    means = Means()
    for _, _, readings in store.windows(row["pipeline"], start, start + OUTCOME_SECONDS):
        own = readings.get("", {})
        means.add("", ((str(metric), own[metric]) for metric in AFTERWARDS if metric in own))
    return means.readings().get("") or None
