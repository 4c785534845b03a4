"""A bundle's process: it says hello to the conductor, takes orders, and lets neighbours connect."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.base.files import private_folder
from penstock.connectors.storage import user_folder
from penstock.engines.placed import wire
from penstock.engines.placed.accept_loop import AcceptLoop
from penstock.engines.placed.bundle.generation import Generation
from penstock.engines.placed.flow.bundle import BundleFlow
from penstock.engines.placed.messages import (
    BUNDLE_HELLOS,
    LINK_HELLOS,
    ORDERS,
    REPORTS,
    BeatReport,
    BundleHello,
    EndOrder,
    EpochOrder,
    GenerationOrder,
    GoOrder,
    LimitOrder,
    WatchOrder,
)
from penstock.runtime.call_journal import CallJournal, killed_twice, read_last_call, read_records, write_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engines.placed.bundle.generation import Watched
    from penstock.engines.placed.bundle_plan import BundleCode
    from penstock.engines.placed.flow.layout import Channel
    from penstock.engines.placed.messages import Report, TaskPlace
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
        place: TaskPlace,
        measure: Callable[[], Mapping[str, float]],
    ) -> None:
        self._code, self._start, self._credentials = code, start, credentials
        self._conductor, self._place, self._measure = conductor, place, measure
        self._flow = BundleFlow()
        self._changed = threading.Condition(threading.RLock())
        self._generation: Generation | None = None
        self._arrivals = _Arrivals()
        self._watched: Watched = {}
        self._reporting = threading.Lock()
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Until the conductor says so or is gone; raises what no new generation can mend."""
        os.environ.update(self._code.environment)
        dialled = wire.dial(self._conductor, self._credentials)
        # neighbours reach this machine at the same address as the conductor
        self._server = wire.listen(dialled.host)
        hello = BundleHello(self._code.name, self._start, self._server.getsockname()[:2], self._place)
        self._control = wire.introduce(dialled, self._credentials, BUNDLE_HELLOS.encode(hello))
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
        match ORDERS.decode(text):
            case GenerationOrder() as order:
                self._form(order)
            case EpochOrder(generation, epoch, hold):
                if self._generation is not None and generation == self._flow.generation:
                    self._generation.open_epoch(epoch, hold=hold)
            case GoOrder(generation):
                if self._generation is not None and generation == self._flow.generation:
                    self._generation.go()
            case LimitOrder(limit):
                if self._generation is not None:
                    self._generation.limit = limit
            case WatchOrder(fields):
                self._watched = dict(fields)
                if self._generation is not None:
                    self._generation.watch(self._watched)
            case EndOrder():
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
                self._report,
                self._crash,
                crumbs,
                self._watched,
            )
            self._generation = generation
            generation.start(self._arrivals.take(order.generation))

    def _greet(self, made: Connection, greeting: bytes) -> None:
        hello = LINK_HELLOS.decode(greeting)
        generation, channel = hello.generation, hello.channel
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
                self._report(BeatReport(dict(self._measure())), b"")

    def _report(self, report: Report, body: bytes) -> None:
        text = REPORTS.encode(report)
        with self._reporting:
            wire.send_frame(self._control, 0, text, body)

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
