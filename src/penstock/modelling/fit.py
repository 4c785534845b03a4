"""Whether models were measured on the same thing: with each other, with the machine at hand, and with what a pipeline
says of its operators.

Only what is known counts. A model that says neither CPU nor cores nor Spark fits everything.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Kind
from penstock.modelling.fingerprint import fingerprint
from penstock.modelling.model import FixedDemand, Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import MeasuredOn


_TELLING = ("cpu", "cores", "spark")


def fits(first: MeasuredOn, second: MeasuredOn) -> bool:
    """Nothing both of them say differs."""
    pairs = [(getattr(first, key), getattr(second, key)) for key in _TELLING]
    return all(a == b for a, b in pairs if a is not None and b is not None)


def says_where(measured: MeasuredOn) -> bool:
    return any(getattr(measured, key) is not None for key in _TELLING)


def described(measured: MeasuredOn) -> str:
    """In words: CPU, cores, Spark, as far as known."""
    parts = [
        measured.cpu,
        None if measured.cores is None else f"{measured.cores} cores",
        None if measured.spark is None else f"Spark {measured.spark}",
    ]
    return ", ".join(part for part in parts if part) or "an unknown machine"


def misfits(models: Iterable[Model], here: MeasuredOn | None = None) -> list[str]:
    """Warnings, none where all is well.

    Without `here`: one if the models were measured on different machines, naming who on which. With `here`: one for
    every other machine that some of them were measured on.
    """
    groups: list[tuple[MeasuredOn, list[str]]] = []
    for model in models:
        if says_where(model.measured_on):
            group = next((names for place, names in groups if fits(place, model.measured_on)), None)
            if group is None:
                groups.append((model.measured_on, [model.name]))
            elif model.name not in group:
                group.append(model.name)
    if here is not None:
        return [
            f"{_models(names)} measured on {described(place)}, this is {described(here)}: what they predict need not "
            "hold here; penstock profile measures them here"
            for place, names in groups
            if not fits(place, here)
        ]
    if len(groups) < 2:
        return []
    where = "; ".join(f"{', '.join(names)} on {described(place)}" for place, names in groups)
    return [f"models measured on different machines are mixed ({where}): their rates need not hold on one of them"]


def _models(names: list[str]) -> str:
    return f"model {names[0]} was" if len(names) == 1 else f"models {', '.join(names)} were"


QUIET = 0.1
"""Others may use so much of a machine before what is measured on it comes with a warning."""


def disturbed(models: Iterable[Model]) -> list[str]:
    """A warning if other processes used much of the machine while models were measured."""
    busiest = {model.name: model.measured_on.others_cpu or 0.0 for model in models}
    names = [name for name, share in busiest.items() if share > QUIET]
    if not names:
        return []
    return [
        f"others used up to {100 * max(busiest.values()):.0f} % of the machine while {', '.join(names)} "
        f"{'was' if len(names) == 1 else 'were'} measured: rates are too low; penstock profile measures them again"
    ]


def unfinished(models: Iterable[Model]) -> list[str]:
    """A warning for every model of which nobody knows what more threads would do."""
    return [
        f"model '{model.name}': its rate still rose at {model.points[-1].threads} threads when its profile ended, so "
        "fewer slots may do; penstock profile goes on with a larger --budget or --most-threads"
        for model in models
        if model.measured_on.still_rising
    ]


OTHER = 1.5
"""Times what is declared, or the declared times what was seen: more is something else."""
LEAST_SAMPLES = 30
DEVIATIONS = 2.0
"""Of what that many samples show by chance."""


def other_selectivity(pipeline: Pipeline, models: Mapping[str, object]) -> list[str]:
    """A warning for every operator whose streams say another selectivity than it, by name in `models`, was seen to have
    when it was measured."""
    warnings = []
    for name, model in models.items():
        if not isinstance(model, Model) or model.measured_on.selectivity is None:
            continue
        seen, samples = model.measured_on.selectivity, model.measured_on.samples or 0
        receivers: dict[float, list[str]] = {}
        for stream in pipeline.outputs(name):
            if not stream.constant and not stream.selectivities and _differ(stream.selectivity, seen, samples):
                receivers.setdefault(stream.selectivity, []).append(f"'{stream.receiver}'")
        way_out = f"declare selectivity={seen:.3g} there" if seen else "declare there what comes through"
        warnings += [
            f"operator '{name}' sent {seen:.3g} tuples for each of {samples} samples when it was measured, and what it "
            f"sends to {', '.join(names)} is planned with {declared:g}: {way_out}"
            for declared, names in receivers.items()
        ]
    return warnings


def _differ(declared: float, seen: float, samples: int) -> bool:
    """Counts of n tuples vary by chance by about their root."""
    larger, smaller = max(declared, seen), min(declared, seen)
    by_chance = DEVIATIONS * math.sqrt(samples * larger)
    return samples >= LEAST_SAMPLES and larger > OTHER * smaller and samples * (larger - smaller) > by_chance


# Warnings about the models of a pipeline, for readers of a prediction.


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
