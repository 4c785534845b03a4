"""Independent tasks as a Spark DataFrame: one row, one partition and one Spark task for each.

What has ended is read from a folder of markers, not from Spark: so the progress bar moves case by case, and what was
finished before Ctrl-C counts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.plugins import is_whole, pause, temporary_folder, write_text
from penstock.spark.session.interrupts import Interrupt, ignore_interrupts, interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class SweepOutcome:
    """Tasks that were finished, those that raised (and what), and whether Ctrl-C left some undone."""

    finished: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass(frozen=True)
class _Marked:
    """Runs in Spark's workers: a task's marker is empty when it was done, and else says what went wrong."""

    work: Callable[[str], None]
    markers: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        ignore_interrupts()
        for batch in batches:
            for number, task in zip(batch.column("id").to_pylist(), batch.column("task").to_pylist(), strict=True):
                try:
                    self.work(task)
                    error = ""
                except Exception as raised:  # whatever a case raises is reported, and the others go on
                    error = f"{type(raised).__name__}: {raised}"
                write_text(Path(self.markers) / str(number), error)
            yield batch.select(["id"])


def run_tasks(
    session: SparkSession, work: Callable[[str], None], tasks: Sequence[str], tell: Callable[[int], None]
) -> SweepOutcome:
    """Call `work` once with every task, as many at a time as there are cores; `tell` hears how many have ended.

    `work` keeps what it makes itself. Ctrl-C ends what is under way in the session and returns.
    """
    with temporary_folder("sweep") as markers:
        interrupt = Interrupt()
        broken: list[BaseException] = []

        def collect() -> None:
            try:
                _frame(session, tasks).mapInArrow(_Marked(work, str(markers)), "id bigint").toArrow()
            except Exception as error:
                broken.append(error)

        runner = threading.Thread(target=collect, name="penstock-sweep", daemon=True)
        with interrupts(interrupt):
            runner.start()
            while runner.is_alive() and not interrupt.asked:
                pause(POLL_SECONDS)
                tell(_ended(markers))
            while runner.is_alive():  # a job that was not there yet when others were cancelled comes later
                session.sparkContext.cancelAllJobs()
                runner.join(POLL_SECONDS)
        if broken and not interrupt.asked:
            raise broken[0]
        errors = {int(path.name): path.read_text("utf-8") for path in markers.iterdir() if is_whole(path.name)}
    tell(len(errors))
    return SweepOutcome(
        tuple(task for number, task in enumerate(tasks) if errors.get(number) == ""),
        {tasks[number]: error for number, error in sorted(errors.items()) if error},
        interrupted=interrupt.asked and len(errors) < len(tasks),
    )


def _ended(markers: Path) -> int:
    return sum(1 for path in markers.iterdir() if is_whole(path.name))


def _frame(session: SparkSession, tasks: Sequence[str]) -> DataFrame:
    """A partition per task: a range has as many as it is asked for, and a broadcast join keeps them."""
    from pyspark.sql.functions import broadcast  # noqa: PLC0415 - Spark loads only when it is used

    cases = session.createDataFrame(list(enumerate(tasks)), "id bigint, task string")
    return session.range(0, len(tasks), 1, len(tasks)).join(broadcast(cases), "id")
