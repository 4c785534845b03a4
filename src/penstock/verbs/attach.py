"""`penstock.attach(spark, ...)`: one line in the driver of an application that was not written for Penstock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.control.attached.attachment import Attachment
from penstock.control.attached.following import CALM_SECONDS, SizingGoal
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def attach(
    spark: Any,
    *,
    name: str,
    target: float | Mapping[str, float] | None = None,
    minimum: int = 1,
    maximum: int | None = None,
    act: bool = True,
    calm_seconds: float = CALM_SECONDS,
) -> Attachment:
    """From now on the queries of the session are watched, their model is learned, and executors follow what arrives.

    `target` is a rate in rows/s, or `{"rate": ..., "latency_ms": ...}`. Executors come at once when they are needed and
    go when fewer were enough for `calm_seconds`, from `minimum` to `maximum`; queries are never restarted. With `act`
    False, or where Spark's settings do not let executors come and go (`Attachment.why_not`), there is advice only:
    `Attachment.advice`. The session must have been made with `penstock.attachable_settings(n)` to follow.
    """
    if not name:
        raise BadInputError("name: expected a name for the application")
    from penstock.spark.attached.application import SparkApplication  # noqa: PLC0415 - needs the extra `spark`

    wanted = _wanted(target, minimum, maximum, calm_seconds)
    return Attachment(name, SparkApplication(spark), wanted, act=act).start()


def attachable_settings(executors: int = 1) -> dict[str, str]:
    """Spark settings for a session whose executors are to follow: it starts with so many, of one core each."""
    if executors < 1:
        raise BadInputError(f"executors: expected at least 1, found {executors}")
    from penstock.spark.attached.application import attachable_settings as settings  # noqa: PLC0415 - needs Spark

    return settings(executors)


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
