"""`penstock.attach(spark, ...)`: one line in the driver of an application that was not written for Penstock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.control.attached.attachment import Attachment
from penstock.control.attached.following import CALM_SECONDS, SizingGoal
from penstock.errors import BadInputError
from penstock.files import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    `controller` is the address of a controller, or `"local"`: the one `penstock up` started here. `token` is its token
    for applications; without, it is read from the file that PENSTOCK_ATTACH_TOKEN_FILE names. The controller lists the
    application among its pipelines, with `priority`, and admits executors: the application has what it needs or what is
    admitted, whichever is less. One that is away changes nothing.
    """
    if not name:
        raise BadInputError("name: expected a name for the application")
    from penstock.spark.attached.application import SparkApplication, has_named_slots  # noqa: PLC0415 - needs Spark

    wanted = _wanted(target, minimum, maximum, calm_seconds)
    application = SparkApplication(spark, pinned=controller is not None and has_named_slots(spark))
    link = None if controller is None else _link(controller, token, name, wanted, application.cores, priority)
    return Attachment(name, application, wanted, act=act, link=link).start()


def attachable_settings(executors: int = 1, *, by_controller: bool = False) -> dict[str, str]:
    """Spark settings for a session whose executors are to follow: it starts with so many, of one core each.

    `by_controller`: on the cluster of `penstock up`, where the controller says on which slots: it starts with none, and
    those come once it is attached."""
    if executors < 1:
        raise BadInputError(f"executors: expected at least 1, found {executors}")
    from penstock.spark.attached.application import attachable_settings as settings  # noqa: PLC0415 - needs Spark

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
