"""`penstock.produce(...)`: send messages to a topic or into files, at a rate over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.workloads.producer import Produced, ProducerSpec, producer_spec
from penstock.workloads.producer import produce as send

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Produced", "ProducerSpec", "produce"]


def produce(
    spec: ProducerSpec | str | Path | dict[str, Any],
    *,
    listen: Callable[[int, float], None] = lambda messages, seconds: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Produced:
    """Send what `spec` (a file, or what it would hold) says, until its end or until `stopped` says so; returns what was
    sent, and whether the rate was kept."""
    return send(producer_spec(spec), listen, stopped)
