"""A pipeline whose operators are known, run as a whole: with which threads, in which batches, what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.cluster.cores import cores_here
from penstock.errors import RunFailedError
from penstock.jobs.fused import UNKNOWN_RATE
from penstock.prediction.fused import rows_of_batch
from penstock.prediction.fused_setup import fused_setup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.jobs.profile_subject import ProfileSubject
    from penstock.modelling.model import Model, Rehearsal
    from penstock.prediction.fused import FusedSetup
    from penstock.prediction.rate import Demands
    from penstock.spark.trials.rehearsal import RehearsalSpec
    from penstock.spark.trials.samples import OperatorSample

PART, SMALLER = 1.2, 6
"""Batches of a rehearsal hold so much of the work of those of a trial, as the models say, and so many times less. What
single batches take varies by a tenth, and is extrapolated to those of a run, which hold several times as much."""
LONGER = 1.5
"""Times as much work where an operator has several threads: they begin together and are in each other's way, a round of
20 ms takes 24, until they have drifted apart."""
MORE_THAN_DONE = 3.0
"""So many times what the models say is due, so that batches are full."""
MOST_SLOTS = 4


def most_rehearsed_slots() -> int:
    """As many as there are cores; more than a few are taken to be alike."""
    return min(MOST_SLOTS, cores_here())


def rehearsals_on(
    session: Any,
    subject: ProfileSubject,
    models: Mapping[str, Model],
    sources: Mapping[str, OperatorSample],
    environment: Mapping[str, str],
    batch_seconds: float,
    tick: Callable[[], None],
    tell: Callable[[str], None],
) -> tuple[Rehearsal, ...]:
    """In as many slots as the machine has cores, and in one; none where that is not possible, which is told."""
    from penstock.spark.trials.rehearsal import rehearsable, rehearse  # noqa: PLC0415 - Spark loads only when it is used

    name = subject.pipeline.name
    why_not = rehearsable(subject.pipeline, sources) if len(models) == len(subject.models) else "not all is known"
    rehearsals: list[Rehearsal] = []
    # most slots first: what Java compiles while all cores are at work serves the single slot too
    for slots in sorted({1, most_rehearsed_slots()}, reverse=True) if why_not is None else ():
        setup = setup_to_rehearse(subject, models, slots)
        try:
            seen = rehearse(session, spec_to_rehearse(subject, setup, sources, environment, PART * batch_seconds), tick)
        except RunFailedError as error:
            why_not = str(error)
            break
        rehearsals.append(seen)
        tell(as_a_whole(seen, setup))
    if why_not is None:
        return tuple(rehearsals)
    tell(f"pipeline '{name}' was not run as a whole ({why_not}): what Spark needs for its tuples is in no prediction")
    return ()


def setup_to_rehearse(subject: ProfileSubject, models: Mapping[str, Model], slots: int) -> FusedSetup:
    """With the threads its models say, and nothing known of the whole."""
    pipeline = subject.pipeline
    demands: Demands = {name: _unrehearsed(models.get(name)) for name in pipeline.operators}
    return fused_setup(pipeline, None, demands, slots, UNKNOWN_RATE, cores_here())


def _unrehearsed(model: Model | None) -> Model | None:
    if model is None:
        return None
    return replace(model, measured_on=model.measured_on.model_copy(update={"rehearsals": ()}))


def spec_to_rehearse(
    subject: ProfileSubject,
    setup: FusedSetup,
    sources: Mapping[str, OperatorSample],
    environment: Mapping[str, str],
    batch_seconds: float,
) -> RehearsalSpec:
    from penstock.spark.trials.rehearsal import RehearsalSpec  # noqa: PLC0415 - Spark loads only when it is used

    small, large = rows_to_rehearse(setup, batch_seconds)
    return RehearsalSpec(
        pipeline=subject.pipeline,
        code=subject.logic,
        threads=setup.threads,
        slots=setup.slots,
        small=small,
        large=large,
        due_rate=MORE_THAN_DONE * setup.rate(),
        sources=sources,
        environment=environment,
    )


def rows_to_rehearse(setup: FusedSetup, batch_seconds: float) -> tuple[int, int]:
    """Of a small and of a large batch, over all slots."""
    waits = any(count > 1 for count in setup.threads.values())
    large = rows_of_batch(setup, LONGER * batch_seconds if waits else batch_seconds)
    small = max(setup.slots, large // SMALLER)
    return small, max(small + setup.slots, large)


def as_a_whole(rehearsal: Rehearsal, setup: FusedSetup) -> str:
    """What it did, beside what its operators promise."""
    large = rehearsal.large
    alone = large.tuples / setup.batch_seconds(large.tuples)
    return (
        f"as a whole on {rehearsal.slots} {'slot' if rehearsal.slots == 1 else 'slots'}: "
        f"{large.tuples / large.seconds:,.0f} tuples/s in batches of {large.tuples:,}, where models of its operators, "
        f"measured alone, say {alone:,.0f}"
    )
