"""What to say of the models of a pipeline to whoever is about to believe what they predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Kind
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.fit import disturbed, misfits, other_selectivity, unfinished
from penstock.modelling.model import FixedDemand, Model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import MeasuredOn

NO_CODE: Mapping[str, Logic] = {}


def doubts_about(
    pipeline: Pipeline,
    demands: Mapping[str, Model | FixedDemand | None],
    *,
    here: MeasuredOn | None = None,
    beside: Path | None = None,
    code: Mapping[str, Logic] = NO_CODE,
) -> list[str]:
    """Warnings, none where all is well: machines that differ (from each other, or from the machine `here` where it is
    this one that counts), profiles that ended too soon or that others disturbed, code that was changed since, streams
    that carry more or less than is declared. `beside` and `code` as `changed_code` takes them."""
    models = list({demand.name: demand for demand in demands.values() if isinstance(demand, Model)}.values())
    return [
        *misfits(models, here),
        *unfinished(models),
        *disturbed(models),
        *changed_code(pipeline, demands, beside, code),
        *other_selectivity(pipeline, demands),
    ]


def unmeasured(pipeline: Pipeline, demands: Mapping[str, Model | FixedDemand | None]) -> list[str]:
    """Warnings of operators that no model is known of: what is declared of them, or assumed, says nothing of a rate."""
    declared = [name for name, demand in demands.items() if demand is None]
    guessed = [
        name
        for name, demand in demands.items()
        if isinstance(demand, FixedDemand) and pipeline.operators[name].kind is Kind.OPERATOR
    ]
    warnings = []
    if declared:
        warnings.append(f"no model for {', '.join(declared)}: assumed to keep up at any rate")
    if guessed:
        warnings.append(
            f"no model for {', '.join(guessed)}: one thread is assumed to keep up at any rate; "
            f"penstock profile measures {'it' if len(guessed) == 1 else 'them'}"
        )
    return warnings


def changed_code(
    pipeline: Pipeline,
    demands: Mapping[str, Model | FixedDemand | None],
    beside: Path | None = None,
    code: Mapping[str, Logic] = NO_CODE,
) -> list[str]:
    """A warning for every operator whose code is not what its model was measured with, as far as can be seen without
    importing it. `beside`: where modules may lie, after everywhere Python looks. `code`: what was imported to be
    run."""
    complaints = []
    for name, operator in pipeline.operators.items():
        model = demands[name]
        if not isinstance(model, Model) or model.measured_on.code is None:
            continue
        seen = fingerprint(operator, code.get(name), beside, model.measured_on)
        if seen not in (None, model.measured_on.code):
            complaints.append(
                f"operator '{name}': its code changed since model '{model.name}' was measured; "
                "penstock profile measures it again"
            )
    return complaints
