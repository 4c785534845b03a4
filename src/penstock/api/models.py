"""Measure models of operators on Spark, and read, show and import them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.files import check_writable
from penstock.inputs.finders import ModelsLike, find_models
from penstock.modelling.library import read_models_and_profiles
from penstock.modelling.machine import this_machine
from penstock.profiling.profiler import Profile, profile_settings, refuse_to_mix
from penstock.profiling.subject import subject_of
from penstock.report.listener import Listener
from penstock.runs.environment import services_for

if TYPE_CHECKING:
    from penstock.inputs.finders import PipelineLike
    from penstock.modelling.library import ModelLibrary
    from penstock.modelling.model import Model


def profile(
    pipeline: PipelineLike,
    output: str | Path,
    *,
    operators: list[str] | None = None,
    quick: bool = False,
    fresh: bool = False,
    budget_seconds: float | None = None,
    trial_seconds: float | None = None,
    most_threads: int | None = None,
    repeats: int = 1,
    search: str = "bracket",
    rate_step: float | None = None,
    thread_step: int | None = None,
    listener: Listener | None = None,
) -> list[Model]:
    """Measure the operators of a pipeline in trials on embedded Spark and write their models to `output`.

    Every point is written as soon as it is measured; points already there are kept and not measured again, so a profile
    that was interrupted goes on where it stopped; but those that were measured while others used much of the machine
    are, and so are those of code that changed since, and of operators that are seen to get other columns now. A file
    measured on something else is refused, unless `fresh` says to forget what it holds. `search="stepwise"` raises rates
    and threads by `rate_step` (1 tuple/s) and `thread_step` (1) as published, which takes many more trials: give it a
    budget for each operator.
    """
    listener = listener or Listener()
    settings = profile_settings(
        quick=quick,
        budget_seconds=budget_seconds,
        trial_seconds=trial_seconds,
        most_threads=most_threads,
        repeats=repeats,
        search=search,
        rate_step=rate_step,
        thread_step=thread_step,
    )
    subject = subject_of(pipeline, operators)
    path = Path(output)
    check_writable(path)
    here = this_machine()
    measured, profiles = ([], []) if fresh or not path.exists() else read_models_and_profiles(path)
    known = {model.name: model for model in measured}
    refuse_to_mix(path, known.values(), here)
    is_file = isinstance(pipeline, str | Path) and Path(pipeline).is_file()
    beside = Path(pipeline).resolve().parent if is_file and isinstance(pipeline, str | Path) else None
    session = Profile(path, settings, here, known, profiles, listener, subject.fingerprints(beside, known))
    pending = session.pending(subject.code)
    if pending or session.wants_rehearsal(subject):
        with services_for(subject.models_run_for(pending, session.models), listener) as environment:
            session.measure(subject, pending, environment)
    return [session.models[name] for name in subject.code if name in session.models]


def models(models: ModelsLike = None) -> ModelLibrary:
    """The reference models, and the models and profiles of a file or folder before them."""
    return find_models(models)


def import_models(csv_file: str | Path) -> list[Model]:
    """Models from a CSV table of measurements."""
    from penstock.modelling.library import read_csv_models  # noqa: PLC0415 - a rare verb

    return read_csv_models(Path(csv_file))
