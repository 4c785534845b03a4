"""A bundle's process: it says hello to the conductor, takes orders, and lets neighbours connect."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from penstock.base.files import private_folder
from penstock.connectors.storage import user_folder
from penstock.engines.placed import wire
from penstock.engines.placed.accept_loop import AcceptLoop
from penstock.engines.placed.bundle.generation import Generation
from penstock.engines.placed.bundle_plan import GenerationOrder
from penstock.engines.placed.flow.bundle import BundleFlow
from penstock.engines.placed.flow.layout import Channel
from penstock.runtime.call_journal import CallJournal, killed_twice, read_last_call, read_records, write_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engines.placed.bundle.generation import Watched
    from penstock.engines.placed.bundle_plan import BundleCode
    from penstock.engines.placed.wire import Address, Connection, Credentials

BEAT_SECONDS = 1.0


@dataclass
class _Arrivals:
    """Connections of neighbours, by generation: a neighbour may hear of a generation before this process does."""

    by_generation: dict[int, dict[Channel, Connection]] = field(default_factory=dict)

    def take(self, generation: int) -> dict[Channel, Connection]:
        """Those of a generation; older ones are closed."""
        for old in [number for number in self.by_generation if number < generation]:
            for made in self.by_generation.pop(old).values():
                wire.close(made)
        return self.by_generation.pop(generation, {})


class Host:
    """`measure` tells what the slot uses; it is sent with every beat."""

    def __init__(
        self,
        code: BundleCode,
        start: int,
        conductor: Address,
        credentials: Credentials,
        where: Mapping[str, Any],
        measure: Callable[[], Mapping[str, float]],
    ) -> None:
        self._code, self._start, self._credentials = code, start, credentials
        self._conductor, self._where, self._measure = conductor, where, measure
        self._flow = BundleFlow()
        self._changed = threading.Condition(threading.RLock())
        self._generation: Generation | None = None
        self._arrivals = _Arrivals()
        self._watched: Watched = {}
        self._saying = threading.Lock()
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Until the conductor says so or is gone; raises what no new generation can mend."""
        os.environ.update(self._code.environment)
        dialled = wire.dial(self._conductor, self._credentials)
        # where the conductor reaches this machine, neighbours do too
        self._server = wire.listen(dialled.host)
        hello = {
            "bundle": self._code.name,
            "start": self._start,
            "address": list(self._server.getsockname()[:2]),
            "where": dict(self._where),
        }
        self._control = wire.introduce(dialled, self._credentials, hello)
        AcceptLoop(self._server, self._credentials, self._greet).start()
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            while self._obey():
                pass
        except OSError:
            pass  # the conductor is gone, and with it the run as far as this process is concerned
        finally:
            self._over.set()
            if self._generation is not None:
                self._generation.close()
                self._generation.wait_until_closed()
            wire.close(self._control)
            wire.close(self._server)
        if self._error is not None:
            raise self._error

    def _obey(self) -> bool:
        _, text, _ = wire.receive_frame(self._control)
        order = json.loads(text)
        match order["do"]:
            case "form":
                self._form(GenerationOrder.of(order))
            case "epoch" if self._generation is not None:
                if order["generation"] == self._flow.generation:
                    self._generation.open_epoch(order["epoch"], hold=order["hold"])
            case "go" if self._generation is not None:
                if order["generation"] == self._flow.generation:
                    self._generation.go()
            case "limit" if self._generation is not None:
                self._generation.limit = order["limit"]
            case "watch":
                self._watched = {number: (name, above) for number, name, above in order["fields"]}
                if self._generation is not None:
                    self._generation.watch(self._watched)
            case "end":
                return False
        return True

    def _form(self, order: GenerationOrder) -> None:
        first = self._generation is None
        if self._generation is not None:
            self._generation.close()
        crumbs = open_crumbs(order, self._code.name, first=first) if order.careful else None
        with self._changed:
            generation = Generation(
                self._code,
                order,
                self._credentials,
                self._flow,
                self._changed,
                self._say,
                self._crash,
                crumbs,
                self._watched,
            )
            self._generation = generation
            generation.start(self._arrivals.take(order.generation))

    def _greet(self, made: Connection, hello: dict[str, Any]) -> None:
        generation, channel = int(hello["generation"]), Channel(*hello["channel"])
        with self._changed:
            if generation == self._flow.generation and self._generation is not None:
                self._generation.accept(channel, made)
            elif generation > self._flow.generation:
                self._arrivals.by_generation.setdefault(generation, {})[channel] = made
            else:
                wire.close(made)

    def _beat(self) -> None:
        with suppress(OSError):
            while not self._over.wait(BEAT_SECONDS):
                self._say({"say": "beat", "used": dict(self._measure())}, b"")

    def _say(self, message: dict[str, Any], body: bytes) -> None:
        with self._saying:
            wire.send_frame(self._control, 0, json.dumps(message).encode(), body)

    def break_links(self) -> None:
        """As if the network had: both ends find out."""
        if self._generation is not None:
            self._generation.break_links()

    def _crash(self, error: BaseException) -> None:
        """The process ends, and Spark hears why."""
        self._error = error
        wire.close(self._control)


def open_crumbs(order: GenerationOrder, bundle: str, *, first: bool) -> CallJournal:
    """To find the row that kills this bundle's processes. `first`: this process has called nothing yet, so that what it
    finds was left by one that died. A row that is found twice is put aside: once may be chance."""
    own = Path(order.checkpoint)
    # a checkpoint under a URI, or on another machine, cannot be written call by call
    folder = private_folder(own / "crumbs") if own.is_absolute() and own.is_dir() else user_folder("crumbs")
    name = f"{order.run}-{crc32(bundle.encode()):08x}"
    known = folder / f"{name}.found"
    crumbs = read_records(known)
    left = read_last_call(folder / name) if first else None
    if left is not None:
        crumbs.append(left)
        write_records(known, crumbs)
    return CallJournal(folder / name, killed_twice(crumbs))
