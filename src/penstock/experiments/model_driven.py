"""Model-driven scheduling (Shukla and Simmhan), section 8: slots, rates, use and latency of policy pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.experiments import model_driven_cases as cases
from penstock.experiments.contract import Experiment
from penstock.experiments.model_driven_slots import slot_chart, slot_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.experiments.contract import Case, Line, Measures, Results
    from penstock.experiments.published_file import Published
    from penstock.pictures.chart import Chart


@dataclass(frozen=True)
class ModelDriven(Experiment):
    name: ClassVar[str] = "model-driven"
    title: ClassVar[str] = "Slots, rates, use and latency of five allocator and placer pairs"
    figures: ClassVar[str] = "Figs 7-13"
    published: ClassVar[str | None] = "model-driven"
    choices: ClassVar[tuple[str, ...]] = (
        "The application pipelines are only drawn in the document: their shapes are chosen so that what the text states "
        "of them holds (number of tasks, selectivity, the Table task's rate). Their slot counts are not the document's.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        return cases.slot_cases()

    def run_case(self, case: Case) -> Measures:
        return cases.run_slots(case)

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        return slot_lines(results, published)

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        return (slot_chart(results, published),)
