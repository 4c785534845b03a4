"""The files of a run: found again and again while it runs, written down for the processes that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.clock import Stopwatch
from penstock.connectors.file_index import FileIndex
from penstock.connectors.file_rows import file_logic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.dataflow.logic import Logic

LOOK_SECONDS = 1.0


class FileFeed:
    """Keeps the index files in the run's folder up to date, and knows how many tuples there are.

    Tuple n leaves every source at the same time: with several of them there are as many as the shortest has rows.
    """

    def __init__(self, folder: Path, indexes: Mapping[str, FileIndex]) -> None:
        self._indexes = dict(indexes)
        self._paths = {name: folder / f"files-{number}.json" for number, name in enumerate(indexes)}
        self._looked = Stopwatch()
        for name, path in self._paths.items():
            # a run that goes on keeps the order in which it numbered the rows
            if path.exists():
                self._indexes[name] = FileIndex.read(path).with_new_files()
            self._indexes[name].save(path)

    @property
    def logic(self) -> dict[str, Logic]:
        return {name: file_logic(path) for name, path in self._paths.items()}

    @property
    def tuples(self) -> int | None:
        """How many there are by now; None: no source has files, there is no end."""
        return min((index.rows for index in self._indexes.values()), default=None)

    def look(self) -> None:
        """Add files that have appeared; not more often than every second."""
        if not self._indexes or self._looked.seconds() < LOOK_SECONDS:
            return
        self._looked = Stopwatch()
        for name, index in self._indexes.items():
            grown = index.with_new_files()
            if grown is not index:
                grown.save(self._paths[name])
                self._indexes[name] = grown
