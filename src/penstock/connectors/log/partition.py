"""One partition of the embedded log: files of frames, called after the first offset they hold.

Only whoever holds the lock of the log appends or drops; anybody reads what was appended before.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.connectors.log.contract import MESSAGES, DamagedLogError, GoneError, LogError, Span
from penstock.connectors.log.frames import Frame, encode, read_frame, scan, whole_frame_behind
from penstock.files import to_disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

SEGMENT_BYTES = 32 * 2**20
"""A file that has grown so large is followed by another: retention drops whole files."""
ENDING = ".segment"


@dataclass
class _Known:
    """What this process has seen of one file."""

    path: Path
    first: int
    frames: list[Frame] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.frames[-1].end if self.frames else self.first

    @property
    def behind(self) -> int:
        return self.frames[-1].behind if self.frames else 0

    def is_full(self, segment_bytes: int, oldest_ms: int | None) -> bool:
        is_old = oldest_ms is not None and bool(self.frames) and self.frames[0].last_ms < oldest_ms
        return is_old or self.behind >= segment_bytes


class Partition:
    def __init__(self, folder: Path, topic: str, number: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder, self._topic, self._number = folder, topic, number
        self._segment_bytes = segment_bytes
        self._known: dict[int, _Known] = {}

    def look(self) -> Span:
        """What there is by now. Raises `DamagedLogError` where there was more before what there is."""
        firsts = self._firsts()
        for gone in self._known.keys() - set(firsts):
            del self._known[gone]
        for first, following in zip_longest(firsts, firsts[1:]):
            segment = self._known.setdefault(first, _Known(self._path(first), first))
            if segment.end != following:  # the last one may have grown, and others since they were the last
                with _opened(segment.path) as handle:
                    segment.frames += scan(handle, segment.behind, segment.end)
                    self._check_nothing_behind(handle, segment, following)
        return Span(firsts[0], self._known[firsts[-1]].end) if firsts else Span(0, 0)

    def _check_nothing_behind(self, handle: int, segment: _Known, following: int | None) -> None:
        """Offsets have no holes here. Only behind the last whole frame of the last file may there be anything else: one
        that somebody did not finish."""
        frame = whole_frame_behind(handle, segment.behind)
        next_offset = frame.first if frame is not None else following
        if next_offset is not None and next_offset != segment.end:
            raise self._damaged(
                segment.path, segment.behind, segment.end, f", and messages from {next_offset:,} on follow"
            )

    def _damaged(self, path: Path, position: int, offset: int, more: str = "") -> DamagedLogError:
        where = f"topic '{self._topic}', partition {self._number}"
        return DamagedLogError(f"{path}: damaged at byte {position:,}: {where} has no message {offset:,} there{more}")

    @property
    def size(self) -> tuple[int, int]:
        """First offset of the file that is appended to, and its bytes that count: what a journal goes back to."""
        self.look()
        last = max(self._known, default=0)
        return last, self._known[last].behind if self._known else 0

    def append(self, batch: pa.RecordBatch, oldest_ms: int | None = None) -> None:
        """Behind what there is; what somebody left there half written is overwritten. A file that begins with messages
        of before `oldest_ms` is followed by another, however small it is."""
        span = self.look()
        last = max(self._known, default=None)
        if last is None or self._known[last].is_full(self._segment_bytes, oldest_ms):
            last = span.end
            self._known[last] = _Known(self._path(last), last)
        segment = self._known[last]
        times = batch.column("time_ms")
        last_ms = int(times[-1].as_py()) if len(times) else 0
        data = encode(batch, span.end, last_ms)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, segment.behind)
            position = segment.behind
            written = 0
            while written < len(data):
                written += os.pwrite(handle, data[written:], position + written)
            os.fdatasync(handle)
        finally:
            os.close(handle)
        if not segment.frames:  # a new file must be found again, too
            to_disk(self._folder)
            to_disk(self._folder.parent)

    def cut(self, first: int, position: int) -> None:
        """Back to a `size` of before: what was appended since is forgotten."""
        for segment in reversed(self._firsts()):  # whatever dies in between leaves no hole
            if segment > first:
                self._path(segment).unlink()
        if self._path(first).exists():
            os.truncate(self._path(first), position)
        self._known.clear()

    def expire(self, before_ms: int) -> None:
        """Drop files whose messages are all older, but never the one that is appended to."""
        self.look()
        for first in sorted(self._known)[:-1]:
            frames = self._known[first].frames
            if frames and frames[-1].last_ms >= before_ms:
                return
            self._path(first).unlink(missing_ok=True)
            del self._known[first]

    def read(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """To be called by whoever holds the lock, as all that looks: two that look at once know every frame twice. What
        is read was chosen when it returns; the messages themselves may be fetched without the lock."""
        span = self.look()
        if first < span.first:
            raise GoneError(self._topic, self._number, first, span.first)
        if first >= end:
            return iter(())
        starts = sorted(self._known)
        segments = [self._known[start] for start in starts[max(0, bisect_right(starts, first) - 1) :]]
        frames = {segment.path: _frames_between(segment.frames, first, end) for segment in segments}
        return self._read_frames(frames, first, end)

    def _read_frames(self, frames: Mapping[Path, Sequence[Frame]], first: int, end: int) -> Iterator[pa.RecordBatch]:
        for path, inside in frames.items():
            if not inside:
                continue
            with _opened(path) as handle:
                for frame in inside:
                    stored = read_frame(handle, frame)
                    if stored is None:
                        raise self._damaged(path, frame.position, frame.first)
                    low, high = max(first, frame.first), min(end, frame.end)
                    rows = stored.slice(low - frame.first, high - low)
                    yield pa.RecordBatch.from_arrays(
                        [rows["key"], rows["value"], pa.array(np.arange(low, high)), rows["time_ms"]], schema=MESSAGES
                    )

    def _firsts(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(int(path.stem) for path in self._folder.glob(f"*{ENDING}"))

    def _path(self, first: int) -> Path:
        return self._folder / f"{first:020d}{ENDING}"


def _frames_between(frames: Sequence[Frame], first: int, end: int) -> Sequence[Frame]:
    """Those that hold messages from `first` up to `end`."""
    start = bisect_right(frames, first, key=lambda frame: frame.end)
    return frames[start : bisect_left(frames, end, key=lambda frame: frame.first)]


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        yield handle
    finally:
        os.close(handle)
