"""What a console sink shows: a few tuples a second, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.clock import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

SHOWN = 5
EVERY_SECONDS = 1.0


class ConsoleSample:
    def __init__(self, show: Callable[[str, str], None] | None) -> None:
        self._show = show
        self._since: dict[str, Stopwatch] = {}

    @property
    def wanted(self) -> bool:
        return self._show is not None

    def take(self, sink: str, frame: DataFrame) -> None:
        last = self._since.get(sink)
        if self._show is None or (last is not None and last.seconds() < EVERY_SECONDS):
            return
        self._since[sink] = Stopwatch()
        for row in frame.limit(SHOWN).selectExpr("to_json(struct(*)) AS text").collect():
            self._show(sink, row.text)
