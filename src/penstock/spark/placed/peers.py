"""The processes of bundles as the conductor knows them: a connection each, and what they said last."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.placed import wire

if TYPE_CHECKING:
    from penstock.spark.placed.wire import Connection


@dataclass
class Peer:
    bundle: str
    made: Connection
    where: dict[str, Any]
    used: dict[str, float] = field(default_factory=dict)
    sending: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, message: dict[str, Any]) -> None:
        with self.sending, suppress(OSError):  # whoever reads the connection finds out that it is gone
            wire.send_frame(self.made, 0, json.dumps(message).encode())


@dataclass(frozen=True)
class StagedDetails:
    """What a bundle said with an epoch it staged, beside what is committed."""

    hops: dict[int, int] = field(default_factory=dict)
    shown: tuple[tuple[str, str], ...] = ()
    watched: tuple[tuple[int, int, int], ...] = ()
    lag: dict[str, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: dict[str, Any]) -> StagedDetails:
        return cls(
            {int(bin_): int(count) for bin_, count in message["hops"]},
            tuple((sink, row) for sink, row in message["shown"]),
            tuple((number, above, total) for number, above, total in message["watched"]),
            {where: int(count) for where, count in message["lag"].items()},
            {where: int(count) for where, count in message["gone"].items()},
            tuple(message["notes"]),
        )
