"""Conducting a placed run: it goes on for its time, and does what it is asked meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch, now, pause
from penstock.errors import PenstockError
from penstock.report.placed_result import Change
from penstock.spark.placed_run import POLL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.spark.bundles import Bundle
    from penstock.spark.placed_run import PlacedRun
    from penstock.spark.requests import Request, RunFolder


@dataclass(frozen=True)
class Conducted:
    """How a run went: when its sources were held for good, what was due then and in no ticket, and its changes."""

    held: float
    backlog: int
    drain_seconds: float
    changes: tuple[Change, ...]


def conduct(
    run: PlacedRun,
    folder: RunFolder,
    seconds: float,
    bundles_of: Callable[[Path], Sequence[Bundle]],
    interrupted: Callable[[], bool],
    heard: Callable[[PlacedRun, float], None],
) -> Conducted:
    """Run for `seconds` (pauses do not count), then drain. `bundles_of` makes the bundles of a plan to resume onto;
    `heard` is told often, with the seconds run so far."""
    ran, since = 0.0, Stopwatch()
    changes: list[Change] = []
    stopped = False
    while not stopped and ran + since.seconds() < seconds and not interrupted():
        run.step()
        heard(run, ran + since.seconds())
        for request in folder.requests():
            if request.ask == "resume":
                folder.answer(request, {"error": "the run is not drained; drain it first"})
                continue
            ran += since.seconds()
            change, stopped = _pause(run, folder, request, bundles_of, interrupted)
            if change is not None:
                changes.append(change)
            since = Stopwatch()
            if stopped:
                break
        pause(POLL_SECONDS)
    held, backlog = now(), run.dispatcher.backlog
    return Conducted(held, backlog, run.drain(), tuple(changes))


def _pause(
    run: PlacedRun,
    folder: RunFolder,
    request: Request,
    bundles_of: Callable[[Path], Sequence[Bundle]],
    interrupted: Callable[[], bool],
) -> tuple[Change | None, bool]:
    """Drain as asked, then wait to be told to go on or to end; True: to end."""
    drained = run.drain()
    folder.answer(request, {"seconds": drained, "emitted": run.dispatcher.emitted})
    if request.ask == "stop":
        return None, True
    while not interrupted():
        run.step()
        for asked in folder.requests():
            if asked.ask != "resume":
                folder.answer(asked, {"seconds": 0.0, "emitted": run.dispatcher.emitted})
                if asked.ask == "stop":
                    return None, True
                continue
            try:
                bundles = None if asked.plan is None else bundles_of(Path(asked.plan))
            except PenstockError as error:
                folder.answer(asked, {"error": str(error)})
                continue
            resumed = run.resume() if bundles is None else run.replace(bundles)
            folder.answer(asked, {"seconds": resumed, "drained_seconds": drained})
            return Change(drained, resumed, asked.plan), False
        pause(POLL_SECONDS)
    return None, True
