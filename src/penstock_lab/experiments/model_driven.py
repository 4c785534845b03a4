"""Model-driven scheduling (Shukla and Simmhan), section 8: slots, rates, use and latency of policy pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock_lab.contract import Experiment
from penstock_lab.experiments import model_driven_cases as cases
from penstock_lab.experiments.model_driven_lines import rate_charts, rate_lines, slot_charts, slot_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plugins import Chart
    from penstock_lab.contract import Case, Line, Measures, Results
    from penstock_lab.published_values import Published


@dataclass(frozen=True)
class ModelDrivenEvaluation(Experiment):
    name: ClassVar[str] = "model-driven"
    title: ClassVar[str] = "Slots, rates, use and latency of five allocator and placer pairs"
    figures: ClassVar[str] = "Figs 7-13"
    published: ClassVar[str | None] = "model-driven"
    choices: ClassVar[tuple[str, ...]] = (
        "The application pipelines are only drawn in the document: their shapes are chosen so that what the text "
        "states of them holds (number of tasks, selectivity, the Table task's rate). Their slot counts are not "
        "the document's.",
        "Which task stands where in Diamond and Star is only drawn too; it is chosen so that the stated rates of "
        "tasks hold.",
        "The actual rate is simulated: sources emit at a constant rate, tuples are shuffled to threads, service "
        "times are those of the models and do not vary, a slot may use all cores of its node (as a Storm worker "
        "may), and a rate is stable where latency rises by no more than 0.001 s/s.",
        "Predicted rates are the sum of what an operator's slots support, as the document computes them.",
    )
    gaps: ClassVar[tuple[str, ...]] = (
        "Figs 7 to 13 are bar charts, scatter plots and violins: only the values the text states can be compared, "
        "one by one.",
        "The worker thread of a Storm slot, which routes tuples and is what slows Grid at 50 with LSA+RSM (30 of "
        "50), is not simulated.",
        "The simulation runs on the models the prediction uses. So high R2 values say that prediction and "
        "simulation agree, not that the models describe a real cluster.",
        "CPU and memory of the file write task are not published; its model holds placeholders, which shifts CPU "
        "shares.",
    )

    def cases(self, *, quick: bool) -> Sequence[Case]:
        return [*cases.rate_cases(quick=quick), *cases.slot_cases(quick=quick)]

    def run_case(self, case: Case) -> Measures:
        return cases.run(case)

    def lines(self, results: Results, published: Published) -> Sequence[Line]:
        return [*slot_lines(results, published), *rate_lines(results, published)]

    def charts(self, results: Results, published: Published) -> Sequence[Chart]:
        return [*slot_charts(results, published), *rate_charts(results, published)]
