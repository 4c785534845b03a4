"""A placed run that lives, as an object."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import PenstockError
from penstock.engines.placed.run_control import Phase, RunControl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.cluster.topology import Slot
    from penstock.report.figures import Figures
    from penstock.report.result import PlacedResult


class PlacedHandle:
    """What `start_placed(...)` returns: the run goes on by itself, in a thread of this process, and can be asked,
    changed and ended from any thread. The same contract as `RunHandle` of fused runs, with `hold` and `resume`.

    | | |
    |---|---|
    | `folder` | where its commits are; `resume` of another process goes on from there |
    | `status` | starting, running, held, draining, ended or failed (`Phase`) |
    | `slots`, `places` | how many its bundles are on now, and which |
    | `progress` | the figures of the last seconds (`Figures`), None before there are any |
    | `last_batch` | when tuples last came to their end, in seconds since the epoch; None before the first |
    | `hold()` | sources wait, nothing is in flight, all is committed; the seconds that took |
    | `resume(plan=None)` | a held run goes on; or any run goes on by another plan file; seconds to its first tuple |
    | `rescale(slots)` | the plan's own policies plan anew for so many slots; seconds to its first tuple |
    | `drain()` | nothing more is taken in, what is under way is finished, the run ends; what it did |
    | `stop()` | the run ends at once: what is not committed is done again by whoever resumes it; what it did |
    | `await_end(timeout=None)` | what the run did, or None if it still runs after `timeout` seconds |

    Each raises a `PenstockError` that says why where it cannot be done; a change that is refused leaves the run on the
    plan it had. A run that failed raises from `await_end`, `drain` and `stop`.
    """

    def __init__(self, folder: str | Path, conduct: Callable[[RunControl], PlacedResult]) -> None:
        self.folder = folder if "://" in str(folder) else Path(folder).absolute()
        self._control = RunControl()
        self._conduct = conduct
        self._result: PlacedResult | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"placed run in {folder}")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._conduct(self._control)
            self._control.end(Phase.ENDED)
        except BaseException as error:  # raised where the end is awaited
            self._error = error
            self._control.end(Phase.FAILED)

    @property
    def status(self) -> str:
        return str(self._control.phase)

    @property
    def slots(self) -> int:
        return len(self._control.places)

    @property
    def places(self) -> frozenset[Slot]:
        return self._control.places

    @property
    def progress(self) -> Figures | None:
        return self._control.figures

    @property
    def last_batch(self) -> float | None:
        return self._control.last_tuple

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        """From now on `shares` says which part of each epoch's tuples has these fields above these thresholds."""
        self._control.watched = dict(fields)

    @property
    def shares(self) -> Mapping[int, float]:
        return {number: share for number, share in self._control.shares.items() if number in self._control.watched}

    def hold(self) -> float:
        return self._control.ask("drain").result()

    def resume(self, plan: str | Path | None = None) -> float:
        return self._control.ask("resume", None if plan is None else Path(plan)).result()

    def rescale(self, slots: int) -> float:
        return self._control.ask("rescale", slots=slots).result()

    def drain(self) -> PlacedResult:
        with suppress(PenstockError):  # it may be ending already
            self._control.ask("stop").result()
        return self._awaited()

    def stop(self) -> PlacedResult:
        self._control.at_once = True
        return self._awaited()

    def await_end(self, timeout: float | None = None) -> PlacedResult | None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        if self._error is not None:
            raise self._error
        return self._result

    def _awaited(self) -> PlacedResult:
        result = self.await_end()
        if result is None:
            raise PenstockError(f"run in {self.folder} did not end")
        return result
