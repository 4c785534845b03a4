"""004's fluctuating rate, which the document claims and never shows: a pipeline that follows its load, on Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock.files import temporary_folder
from penstock_lab.contract import Agreement, Case, Experiment, Line, Measures, Results
from penstock_lab.control.experiment import live_shown
from penstock_lab.control.live import LIVE_LOADS, follow_live

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.pictures.chart import Chart
    from penstock_lab.published_file import Published

SECONDS = 120.0


@dataclass(frozen=True)
class EStreamLive(Experiment):
    name: ClassVar[str] = "e-stream-live"
    title: ClassVar[str] = "A fluctuating rate on Spark, under the controller"
    figures: ClassVar[str] = "nothing published: 004 claims it and shows none"
    published: ClassVar[str | None] = None
    choices: ClassVar[tuple[str, ...]] = (
        f"A cluster of four nodes with a slot each, {SECONDS:g} s of load between 70 and 210 tuples/s; every tuple "
        "waits 9.5 ms, so that two cores carry four slots. Beside it the same controller over simulated pipelines.",
    )
    gaps: ClassVar[tuple[str, ...]] = (
        "Runs of minutes: a change takes its Java processes as long as the load takes to turn. `control` judges days.",
        "One repetition of each.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        return [{"load": load, "seconds": SECONDS} for load in (LIVE_LOADS[1:2] if quick else LIVE_LOADS)]

    def run_case(self, case: Case) -> Measures:
        measures: Measures = {}
        for way in ("simulated", "spark"):
            with temporary_folder("following") as folder:
                measures[way] = follow_live(
                    case["load"], Path(folder), seconds=case["seconds"], simulated=way == "simulated"
                )
        return measures

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        return [
            Line(
                f"{done.case['load']} on Spark",
                "beside the same simulated",
                "",
                f"{live_shown(done.measures['spark'])} (simulated: {live_shown(done.measures['simulated'])})",
                Agreement.NOT_COMPARABLE,
                "nothing is published",
            )
            for done in results
        ]

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        return []
