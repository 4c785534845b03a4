"""One thread that runs code: what the code opened in it, what it is doing, and whether it was given up on."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch
from penstock.dataflow.logic import Per
from penstock.runtime.abandoned import AbandonedError, interrupt
from penstock.runtime.code_calls import one_or_several
from penstock.runtime.dead_letters import INTERRUPTIONS, StoppedError, error_line
from penstock.runtime.frame_stream import FrameStream
from penstock.runtime.shared_rows import RowShare

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from penstock.dataflow.logic import Logic
    from penstock.runtime.batch import Batch
    from penstock.runtime.code_calls import RowCall
    from penstock.runtime.column_calls import ColumnCall
    from penstock.runtime.frame_stream import Yielded
    from penstock.runtime.pieces import Piece
    from penstock.runtime.shared_rows import SharedRows


@dataclass(slots=True)
class Errand:
    """A piece on its way through the steps of one crew. Whoever holds it can go on with it."""

    crew: int
    agenda: list[tuple[int, Piece]]
    """Steps still to be done, with what they get; the last is next."""
    rows: int
    """It began with."""
    call: RowCall | ColumnCall | RowShare | None = None
    position: int = 0
    """Of the step whose call is under way."""
    lost_seconds: float = 0.0
    """That threads which were given up on spent in that call."""
    busy_seconds: float = 0.0
    share: RowShare | None = None
    """Where it is a part in rows that a crew shares: how many it takes is known in the end."""

    @property
    def rows_taken(self) -> int:
        return self.rows if self.share is None else self.share.size


def share_of(shared: SharedRows, crew: int) -> Errand:
    """A thread's part in rows that its crew shares."""
    share = RowShare(shared)
    return Errand(crew, [], 0, share, shared.position, share=share)


@dataclass(slots=True, eq=False)
class Worker:
    crew: int = 0
    errand: Errand | None = None
    _handles: dict[str, tuple[Logic, Any]] = field(default_factory=dict)
    _streams: dict[str, FrameStream] = field(default_factory=dict)
    last_over_frames: dict[str, ColumnCall] = field(default_factory=dict)
    """The last call of code over frames, by operator: what it holds back comes out as that one's would."""
    to_finish: bool = False
    """Asked to end its streams."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _since: Stopwatch | None = None
    """When the call under way began, if it has a time limit."""
    _limit: float = 0.0
    _abandoned: bool = False

    def arguments(self, operator: str, logic: Logic) -> tuple[Any, ...]:
        """What the code gets behind its rows: what `open` made for this thread, if there is an `open`."""
        if logic.open is None:
            return ()
        if operator not in self._handles:
            try:
                self._handles[operator] = (logic, logic.open())
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                raise StoppedError(f"operator '{operator}': its open raised {error_line(error)}") from error
        return (self._handles[operator][1],)

    def code(self, operator: str, logic: Logic) -> Callable[..., Any]:
        """The function to call; with a time limit around it, if it has one."""
        function = partial(self._give, operator, logic) if logic.per is Per.MAP_IN_PANDAS else logic.function
        if logic.timeout_seconds is None:
            return function
        return partial(self._timed, function, logic.per is Per.ROW, logic.timeout_seconds)

    def _give(self, operator: str, logic: Logic, frame: pd.DataFrame, piece: Batch) -> Yielded:
        """Code over frames goes on where it is; if it returned or raised, it is called anew."""
        stream = self._streams.get(operator)
        if stream is None or stream.over:
            stream = self._streams[operator] = FrameStream(operator, logic.function, self.arguments(operator, logic))
        return stream.give(frame, piece)

    def end_stream(self, operator: str, logic: Logic) -> tuple[list[pd.DataFrame], list[Batch]]:
        """What code over frames still yields when there are no more, and the pieces of which nothing had come."""
        stream = self._streams.pop(operator, None)
        if stream is None or stream.over:
            return [], []
        try:
            return stream.end(logic.timeout_seconds)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            raise StoppedError(f"operator '{operator}', at the end of its frames: {error_line(error)}") from error

    def drop_streams(self) -> None:
        for stream in self._streams.values():
            stream.drop()
        self._streams.clear()

    def _timed(self, function: Callable[..., Any], per_row: bool, limit: float, *arguments: Any) -> Any:
        self._limit = limit
        self._since = Stopwatch()
        try:
            made = function(*arguments)
            return one_or_several(made) if per_row else made
        finally:
            with self._lock:
                self._since = None
                if self._abandoned:
                    raise AbandonedError

    def abandon_if_late(self) -> Worker | None:
        """By the watch: if the call under way is past its limit, this thread no longer owns its errand. Its heir does:
        with the row that took too long put aside, or its batch halved."""
        with self._lock:  # until it is left, this thread does not go on, even if its call returns now
            errand = self.errand
            late = self._since is not None and self._since.seconds() > self._limit
            if self._abandoned or not late or errand is None or errand.call is None:
                return None
            self._abandoned = True
            stuck = self._streams.pop(errand.call.operator, None)
            heir = self._heir(errand)
        error: BaseException = TimeoutError(f"took longer than {self._limit:g} s")
        if stuck is not None:
            interrupt(stuck.thread)
            error = stuck.failure(error)
        errand.lost_seconds += self._limit
        errand.call.put_aside(error)
        return heir

    def _heir(self, errand: Errand) -> Worker:
        """Who goes on with the errand, and with code over frames that waits for more: what that holds back is not
        lost, nor what was opened for it. Whatever else was opened belongs to this thread."""
        heir = Worker(self.crew, errand, to_finish=self.to_finish, last_over_frames=self.last_over_frames)
        heir._streams, self._streams = self._streams, {}
        for operator in heir._streams.keys() & self._handles.keys():
            heir._handles[operator] = self._handles.pop(operator)
        return heir

    def close(self) -> None:
        """Ends what was opened, in the thread that opened it."""
        self.drop_streams()
        while self._handles:
            _, (logic, handle) = self._handles.popitem()
            if logic.close is not None:
                logic.close(handle)
