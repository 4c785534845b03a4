"""Models by name: the built-in reference tasks, those that users measured, their files, and doubts about them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, model_validator

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import CsvTable, ModelName, Spec, Versioned, check, describe, parse_json, quoted, read_document
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.dataflow.code import has_code, is_sparks_own
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Kind, Operator, Pipeline
from penstock.modelling.fingerprint import fingerprint, shape_of
from penstock.modelling.model import (
    AGGREGATE_DEMAND,
    SINK_DEMAND,
    SOURCE_DEMAND,
    FixedDemand,
    MeasuredOn,
    Model,
    Point,
    as_placed,
)
from penstock.modelling.task_profile import TaskProfile, handled_per_tuple, model_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from penstock.dataflow.logic import Logic
    from penstock.modelling.model import Rehearsal


class ModelEntry(Spec):
    points: tuple[Point, ...]
    measured_on: MeasuredOn = MeasuredOn()


class ModelFile(Versioned):
    about: str = ""
    models: dict[ModelName, ModelEntry] = Field(default_factory=dict)
    profiles: dict[ModelName, TaskProfile] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _name_profiles_by_their_key(cls, data: Any) -> Any:
        profiles = data.get("profiles") if isinstance(data, dict) else None
        if not isinstance(profiles, dict):
            return data
        named = {}
        for name, given in profiles.items():
            if isinstance(given, dict) and "name" in given:
                raise ValueError(f"profiles.{name}: unknown key 'name'; a profile is named by its key")
            named[name] = {"name": name, **given} if isinstance(given, dict) else given
        return {**data, "profiles": named}


def read_models(path: Path) -> list[Model]:
    """The slot models of one file, or of every model file in a folder in order of their names."""
    return read_models_and_profiles(path)[0]


def read_models_and_profiles(path: Path) -> tuple[list[Model], list[TaskProfile]]:
    """Slot models and task profiles of one file, or of every model file in a folder in order of their names."""
    if not path.is_dir():
        return parse_models_and_profiles(read_document(path), str(path))
    files = sorted(file for file in path.iterdir() if file.suffix in {".json", ".yaml", ".yml"})
    if not files:
        raise BadInputError(f"{path}: no model file (.json or .yaml) in this folder")
    contents = [parse_models_and_profiles(read_document(file), str(file)) for file in files]
    return [model for models, _ in contents for model in models], [
        profile for _, profiles in contents for profile in profiles
    ]


def parse_models(data: Any, where: str) -> list[Model]:
    return parse_models_and_profiles(data, where)[0]


def parse_models_and_profiles(data: Any, where: str) -> tuple[list[Model], list[TaskProfile]]:
    spec = check(ModelFile, data, where)
    if not spec.models and not spec.profiles:
        raise BadInputError(f"{where}: models: expected at least one model or profile")
    try:
        models = [Model(name, entry.points, entry.measured_on) for name, entry in spec.models.items()]
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
    return models, list(spec.profiles.values())


def models_document(models: Iterable[Model], about: str = "", profiles: Iterable[TaskProfile] = ()) -> dict[str, Any]:
    """The plain contents of the file that holds `models` and `profiles`."""
    entries = {
        model.name: ModelEntry(points=model.points, measured_on=model.measured_on).model_dump(
            mode="json", exclude_defaults=True
        )
        for model in models
    }
    costs = {
        profile.name: profile.model_dump(mode="json", exclude={"name"}, exclude_defaults=True) for profile in profiles
    }
    document: dict[str, Any] = {"format": ModelFile.newest, **({"about": about} if about else {})}
    if entries or not costs:
        document["models"] = entries
    if costs:
        document["profiles"] = costs
    return document


_COLUMNS = ("model", "threads", "rate", "cpu", "memory", "rate_spread", "cpu_spread", "memory_spread")
_PERCENT = ("cpu", "memory", "cpu_spread", "memory_spread")


def read_csv_models(path: Path) -> list[Model]:
    """Models from a table with a header: model, threads, rate, cpu, memory, and optional *_spread columns.

    A column of shares may be named with `_percent` behind (cpu_percent): its values are divided by 100.
    """
    table = CsvTable(path)
    known = {*_COLUMNS, *(f"{name}_percent" for name in _PERCENT)}
    header = table.header
    given: set[str] = set()
    for name in header:
        if name not in known:
            raise BadInputError(f"{path}: header: unknown column '{quoted(name)}'; expected {', '.join(_COLUMNS)}")
        if name.removesuffix("_percent") in given:
            raise BadInputError(f"{path}: header: column '{name.removesuffix('_percent')}' is given twice")
        given.add(name.removesuffix("_percent"))
    for name in _COLUMNS[:5]:
        if name not in header and f"{name}_percent" not in header:
            raise BadInputError(f"{path}: header: column '{name}' is missing")
    for share in ("cpu", "memory"):
        spreads = {f"{share}_spread", f"{share}_spread_percent"} & set(header)
        if spreads and (share in header) != (f"{share}_spread" in spreads):
            raise BadInputError(f"{path}: header: '{share}' and its spread must both be in percent or neither")
    points: dict[str, list[Point]] = {}
    for line, row in table.rows():
        where = f"{path}: line {line}"
        points.setdefault(_cell(row, "model", where), []).append(_point(row, where))
    if not points:
        raise BadInputError(f"{path}: expected at least one row under the header")
    try:
        return [
            Model(
                name,
                tuple(sorted(measured, key=lambda point: point.threads)),
                MeasuredOn(what=f"imported from {path.name}"),
            )
            for name, measured in points.items()
        ]
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error


def _cell(row: dict[str, str], name: str, where: str) -> str:
    if not row[name]:
        raise BadInputError(f"{where}: column '{name}' is empty")
    return row[name]


def _point(row: dict[str, str], where: str) -> Point:
    fields: dict[str, float | int] = {}
    for column, cell in row.items():
        if column == "model" or (column.removesuffix("_percent").endswith("_spread") and not cell):
            continue
        text = _cell(row, column, where)
        try:
            number = float(text)
        except ValueError as error:
            raise BadInputError(f"{where}: column '{column}': expected a number, found '{quoted(text)}'") from error
        name = column.removesuffix("_percent")
        fields[name] = number / 100 if name != column else number
    if not float(fields["threads"]).is_integer():
        raise BadInputError(f"{where}: column 'threads': expected a whole number, found {fields['threads']:g}")
    try:
        return Point.model_validate({**fields, "threads": int(fields["threads"])})
    except ValidationError as error:
        raise BadInputError(f"{where}: {describe(error)}") from error


@dataclass(frozen=True)
class ModelLibrary:
    """Slot models and task profiles by name, in order; a name may have both."""

    models: Mapping[str, Model]
    profiles: Mapping[str, TaskProfile] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, models: Iterable[Model], profiles: Iterable[TaskProfile] = ()) -> ModelLibrary:
        table: dict[str, Model] = {}
        for model in models:
            if model.name in table:
                raise BadInputError(f"model '{model.name}' is given twice")
            table[model.name] = model
        costs: dict[str, TaskProfile] = {}
        for profile in profiles:
            if profile.name in costs:
                raise BadInputError(f"profile '{profile.name}' is given twice")
            costs[profile.name] = profile
        return cls(MappingProxyType(table), MappingProxyType(costs))

    def get(self, name: str, wanted_by: str = "models") -> Model:
        if name not in self.models:
            raise BadInputError(f"{wanted_by}: no model named '{name}'; {nearest(name, self.models)}")
        return self.models[name]

    def name_for(self, pipeline: str, operator: str, model: str | None) -> str:
        """Return the name of an operator's entry: the model it names, else that of this operator of this pipeline, else
        that of any operator of this name (a reference task, or a file without names of pipelines)."""
        own = qualified(pipeline, operator)
        return model or (own if own in self.models or own in self.profiles else operator)

    def of_pipeline(self, pipeline: Pipeline) -> ModelLibrary:
        """Return only the entries for the operators of one pipeline."""
        names = {
            self.name_for(pipeline.name, operator.name, operator.model) for operator in pipeline.operators.values()
        }
        return ModelLibrary(
            MappingProxyType({name: model for name, model in self.models.items() if name in names}),
            MappingProxyType({name: profile for name, profile in self.profiles.items() if name in names}),
        )

    def updated_with(self, other: ModelLibrary) -> ModelLibrary:
        """Both; of two models, or two profiles, with one name the other's."""
        return ModelLibrary(
            MappingProxyType({**self.models, **other.models}),
            MappingProxyType({**self.profiles, **other.profiles}),
        )

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models.values())


def qualified(pipeline: str, operator: str) -> str:
    """The model of one operator of one pipeline; names have no slash."""
    return f"{pipeline}/{operator}"


@cache
def reference_library() -> ModelLibrary:
    """The reference tasks of Shukla and Simmhan and those of built-in pipelines, every figure with how it is known."""
    measured = []
    for name in ("reference-tasks", "workload-tasks", "application-tasks", "profiled-tasks"):
        text = (resources.files("penstock.modelling") / "data" / f"{name}.json").read_text("utf-8")
        measured += parse_models(parse_json(text, name), name)
    return ModelLibrary.of(measured)


# The demand of every operator of a pipeline.

_END_DEMANDS = {Kind.SOURCE: SOURCE_DEMAND, Kind.SINK: SINK_DEMAND}


def demands_of(
    pipeline: Pipeline, library: ModelLibrary, slot_memory_mb: float = DEFAULT_SLOT_MEMORY_MB
) -> Mapping[str, Model | FixedDemand | None]:
    """Return the demand of every operator: its model, a fixed demand (ends without one), or None (demand declared).

    An operator that names no model uses its own (`ModelLibrary.name_for`). If there is only a profile of that name, it
    is the model of a slot with `slot_memory_mb` that the profile describes.
    """
    return {
        name: _demand_of(pipeline, operator, library, slot_memory_mb) for name, operator in pipeline.operators.items()
    }


def _demand_of(
    pipeline: Pipeline, operator: Operator, library: ModelLibrary, slot_memory_mb: float
) -> Model | FixedDemand | None:
    if operator.is_declared:
        return None
    name = library.name_for(pipeline.name, operator.name, operator.model)
    if name not in library.models and name in library.profiles:
        return model_of(library.profiles[name], slot_memory_mb, handled_per_tuple(pipeline, operator.name))
    if operator.model is None and operator.kind in _END_DEMANDS:
        return library.models.get(name, _END_DEMANDS[operator.kind])
    if operator.model is None and is_sparks_own(operator):
        return library.models.get(name, AGGREGATE_DEMAND)
    if operator.model is None and name not in library.models and has_code(operator):
        raise BadInputError(
            f"operator '{operator.name}' was not measured: penstock profile PIPELINE -o models.json measures it, then "
            "--models models.json"
        )
    return library.get(name, f"operator '{operator.name}'")


def placed_demands(demands: Mapping[str, Model | FixedDemand | None]) -> Mapping[str, Model | FixedDemand | None]:
    """Return the demands of a placed run, which executes aggregations by itself."""
    return {name: as_placed(demand) if isinstance(demand, Model) else demand for name, demand in demands.items()}


def profiles_of(pipeline: Pipeline, library: ModelLibrary) -> Mapping[str, TaskProfile]:
    """The task profile of every operator that has one and does not declare its demand."""
    named = {
        name: library.name_for(pipeline.name, name, operator.model)
        for name, operator in pipeline.operators.items()
        if not operator.is_declared
    }
    return {name: library.profiles[model] for name, model in named.items() if model in library.profiles}


def demands_to_run(pipeline: Pipeline, library: ModelLibrary) -> Mapping[str, Model | FixedDemand | None]:
    """Return the demands as planning has them; None for an operator without a model, which may still run."""
    unknown = {
        name
        for name, operator in pipeline.operators.items()
        if operator.kind is Kind.OPERATOR
        and operator.model is None
        and not operator.is_declared
        and (known_as := library.name_for(pipeline.name, name, None)) not in library.models
        and known_as not in library.profiles
    }
    known = Pipeline.of(
        pipeline.name, [operator for operator in pipeline.operators.values() if operator.name not in unknown], []
    )
    return {**demands_of(known, library), **dict.fromkeys(unknown)}


# Whether models were measured on the same thing: with each other, with the machine at hand, and with what a pipeline
# declares of its operators. A value that is not known equals all others: a model without CPU, cores and Spark version
# fits everything.


_TELLING = ("cpu", "cores", "spark")


def fits(first: MeasuredOn, second: MeasuredOn) -> bool:
    """Nothing both of them say differs."""
    pairs = [(getattr(first, key), getattr(second, key)) for key in _TELLING]
    return all(a == b for a, b in pairs if a is not None and b is not None)


def says_where(measured: MeasuredOn) -> bool:
    return any(getattr(measured, key) is not None for key in _TELLING)


def described(measured: MeasuredOn) -> str:
    """Return a description: CPU, cores, Spark, as far as known."""
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
"""Part of a machine that other processes may use before measurements on it come with a warning."""


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
    """Return a warning for every model that does not show the effect of more threads."""
    return [
        f"model '{model.name}': its rate still rose at {model.points[-1].threads} threads when its profile ended, so "
        "fewer slots may do; penstock profile goes on with a larger --budget or --most-threads"
        for model in models
        if model.measured_on.still_rising
    ]


OTHER = 1.5
"""Max factor between a declared and a measured value, in both directions: beyond it they differ."""
LEAST_SAMPLES = 30
DEVIATIONS = 2.0
"""Standard deviations that samples may differ by chance."""


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
    """Return warnings about models; none if all is well: different machines (among models, or from the machine `here`
    if that is the one that counts), profiles that ended too soon or were disturbed, code changed since, streams that
    carry more or less than declared. `beside` and `code` as for `changed_code`."""
    models = list({demand.name: demand for demand in demands.values() if isinstance(demand, Model)}.values())
    return [
        *misfits(models, here),
        *unfinished(models),
        *disturbed(models),
        *changed_code(pipeline, demands, beside, code),
        *other_selectivity(pipeline, demands),
    ]


def unmeasured(pipeline: Pipeline, demands: Mapping[str, Model | FixedDemand | None]) -> list[str]:
    """Return warnings about operators without a model: declared or assumed demands give no rate."""
    declared = [name for name, demand in demands.items() if demand is None]
    guessed = [name for name in unmeasured_operators(pipeline, demands) if name not in declared]
    warnings = []
    if declared:
        warnings.append(f"no model for {', '.join(declared)}: their highest rate is unknown")
    if guessed:
        warnings.append(
            f"no model for {', '.join(guessed)}: planned with one thread, whose rate is unknown; "
            f"penstock profile measures {'it' if len(guessed) == 1 else 'them'}"
        )
    return warnings


def unmeasured_operators(pipeline: Pipeline, demands: Mapping[str, Model | FixedDemand | None]) -> tuple[str, ...]:
    """Return the operators without a model. Sources and sinks have assumed demands and are not among them."""
    return tuple(
        name
        for name, operator in pipeline.operators.items()
        if operator.kind is Kind.OPERATOR and not isinstance(demands[name], Model)
    )


def changed_code(
    pipeline: Pipeline,
    demands: Mapping[str, Model | FixedDemand | None],
    beside: Path | None = None,
    code: Mapping[str, Logic] = NO_CODE,
) -> list[str]:
    """Return a warning for every operator whose code differs from the code its model was measured with, as far as that
    can be seen without importing it. `beside`: a place of modules, after all places Python looks in. `code`: code that
    was imported to be run."""
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


def sparks_own(pipeline: Pipeline, demands: Mapping[str, Model | FixedDemand | None]) -> set[str]:
    """Return the operators that are part of Spark's query, as they or their models declare."""
    return {
        name
        for name, operator in pipeline.operators.items()
        if is_sparks_own(operator)
        or (isinstance(model := demands[name], Model) and model.measured_on.per is Per.DATAFRAME)
    }


def rehearsals_of(pipeline: Pipeline, demands: Mapping[str, Model | FixedDemand | None]) -> list[Rehearsal]:
    """Return the rehearsals of the pipeline as it is that all its models have: a model that was measured anew since has
    none."""
    known = [
        demand.measured_on.rehearsals
        for name, demand in demands.items()
        if isinstance(demand, Model) and pipeline.operators[name].kind is Kind.OPERATOR
    ]
    measured = {name for name, operator in pipeline.operators.items() if operator.kind is Kind.OPERATOR}
    return [
        rehearsal
        for rehearsal in (known[0] if known else ())
        if rehearsal.pipeline == pipeline.name
        and set(rehearsal.threads) == measured
        and rehearsal.shape in (None, shape_of(pipeline))
        and all(rehearsal in others for others in known)
    ]
