"""Bundles as plain processes of this machine: the placed engine without Spark, for tests and benches.

Everything else is the same: processes connect, link up, stage and die as Spark's tasks do, only faster.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from penstock.spark.placed.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.flow.layout import Bundle
    from penstock.spark.placed.orders import BundleCode
    from penstock.spark.placed.wire import Address, Credentials

_FORK = multiprocessing.get_context("fork")


def _host(code: BundleCode, start: int, conductor: Address, credentials: Credentials) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host = Host(code, start, conductor, credentials, {"pid": os.getpid()}, dict)
    # whoever hurts the run can break this process's links, as a network would
    signal.signal(signal.SIGUSR1, lambda *_: host.break_links())
    host.run()


class LocalLauncher:
    """Processes by bundle; whoever wants to kill one finds it here."""

    def __init__(self) -> None:
        self.processes: dict[str, Any] = {}

    def start(
        self,
        bundle: Bundle,
        code: BundleCode,
        start: int,
        conductor: Address,
        credentials: Credentials,
        ended: Callable[[str], None],
    ) -> None:
        self.cancel(bundle.name)
        process = _FORK.Process(target=_host, args=(code, start, conductor, credentials), daemon=True)
        # clients of Kafka do not survive being let go of in another process than the one that made them
        gc.freeze()
        try:
            process.start()
        finally:
            gc.unfreeze()
        self.processes[bundle.name] = process

        def watch() -> None:
            process.join()
            ended(f"its process ended with {process.exitcode}")

        threading.Thread(target=watch, daemon=True).start()

    def cancel(self, bundle: str) -> None:
        process = self.processes.pop(bundle, None)
        if process is not None and process.is_alive():
            process.kill()

    def close(self) -> None:
        for bundle in list(self.processes):
            self.cancel(bundle)
