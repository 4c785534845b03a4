"""What requests may contain: strict shapes, and from them the values the core understands."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, Field, StrictBool, StrictStr, ValidationError

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import Name, Positive, Spec, describe, parse_json
from penstock.base.text import one_of
from penstock.control.core.records import (
    EngineName,
    PlanChoices,
    Policy,
    Rescheduling,
    ServiceTarget,
    Submission,
    Trigger,
)
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.elasticity.options import FORMER_NAMES, checked_options
from penstock.control.errors import FieldError
from penstock.control.metrics import Metric
from penstock.control.registry import CODE_TRIGGER, trigger_kind_names
from penstock.control.user_code import USER_CODE
from penstock.dataflow.load import parse_load
from penstock.dataflow.secrets import is_secret, secret_in
from penstock.planning.files import SavedPlan, parse_plan, read_plan
from penstock.planning.registry import ALLOCATORS, PLACERS, SEGMENTERS, SHARERS
from penstock.runs.config import FUSED, MIN_EXECUTOR_MB, PLACED, Appears, RunConfig, read_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.base.registry import Registry


MOST_UNITS = 1_000_000
Units = Annotated[int, Field(ge=1, le=MOST_UNITS, strict=True)]
Level = Annotated[int, Field(ge=1, le=1000, strict=True)]
Rate = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False, strict=True)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False, strict=True)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Part = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=True)]
Text = Annotated[str, Field(min_length=1, max_length=500, strict=True)]
MAX_LOAD_BYTES = 10 * 1024
"""A load is kept and repeated in every answer."""


def _folder_name(name: str) -> str:
    """A pipeline's files are kept in a folder of its name."""
    if name in {".", ".."}:
        raise ValueError(f"'{name}' is no name for a pipeline: it means a folder; give it letters")
    return name


PipelineName = Annotated[Name, AfterValidator(_folder_name)]

CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class TargetBody(Spec):
    rate: Rate | None = None
    latency_ms: Positive | None = None

    def target(self) -> ServiceTarget:
        return ServiceTarget(self.rate, self.latency_ms)


class ElasticBody(Spec):
    """Options of how a pipeline follows its load; those that are not given stay as they are."""

    former: ClassVar[Mapping[str, str]] = FORMER_NAMES

    enabled: StrictBool | None = None
    advise_only: StrictBool | None = None
    catch_up_seconds: Seconds | None = None
    shrink_after_seconds: Seconds | None = None
    shrink_most: Part | None = None
    worth_seconds: Seconds | None = None
    ahead_seconds: Seconds | None = None
    min_utilisation: Part | None = None
    max_utilisation: Part | None = None
    excluded_hours: list[Annotated[int, Field(ge=0, le=23, strict=True)]] | None = None
    forecast: Text | None = None
    veto: Text | None = None


class SubmissionBody(Spec):
    name: PipelineName
    pipeline: StrictStr | dict[str, Any] | None = None
    plan: StrictStr | dict[str, Any] | None = None
    target: TargetBody = TargetBody()
    desired: Units | None = None
    minimum: Units | None = None
    maximum: Units | None = None
    priority: Level | None = None
    engine: StrictStr = "auto"
    load: StrictStr | Rate | None = None
    elastic: ElasticBody | StrictBool | None = None
    allocator: Text | None = None
    placer: Text | None = None
    executor_memory_mb: Annotated[float, Field(ge=MIN_EXECUTOR_MB, le=1e9, allow_inf_nan=False)] | None = None
    executor_cores: Annotated[float, Field(gt=0, le=1024, allow_inf_nan=False)] | None = None
    options: dict[str, Any] | None = None
    """Options of its runs that appear over HTTP, by their names in `RunConfig`."""


class AmendBody(Spec):
    target: TargetBody | None = None
    priority: Level | None = None
    minimum: Units | None = None
    maximum: Units | None = None
    paused: StrictBool | None = None
    load: StrictStr | Rate | None = None
    elastic: ElasticBody | StrictBool | None = None


class TriggerBody(Spec):
    kind: Text
    above: Number | None = None
    below: Number | None = None
    share: Part | None = None
    field: Text | None = None
    for_seconds: Seconds | None = None
    priority: Level | None = None
    enabled: StrictBool = True


class TriggerAmendBody(Spec):
    above: Number | None = None
    below: Number | None = None
    share: Part | None = None
    for_seconds: Seconds | None = None
    priority: Level | None = None
    enabled: StrictBool | None = None


class PolicyBody(Spec):
    """What is not given stays as it is; `default` names the product's own placer, allocator or segmenter."""

    sharing: Text | None = None
    placer: Text | None = None
    allocator: Text | None = None
    segmenter: Text | None = None
    rescheduling: StrictStr | None = None
    default_priority: Level | None = None


class NodesBody(Spec):
    count: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 1
    size: Text | None = None


B = TypeVar("B", bound=Spec)
E = TypeVar("E", bound=StrEnum)


def read_body(shape: type[B], raw: bytes) -> B:
    """The body as `shape`, or a `FieldError` that names the first field that is wrong."""
    try:
        data = parse_json(raw.decode("utf-8"), "body")
    except UnicodeDecodeError as error:
        raise FieldError("body", "expected UTF-8 text") from error
    except BadInputError as error:
        raise FieldError("body", str(error).removeprefix("body: ")) from error
    if not isinstance(data, dict):
        raise FieldError("body", f"expected a JSON object, found {type(data).__name__}")
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise FieldError(field, describe(error).removeprefix(f"{field}: ")) from error


def load_text(load: str | float | None) -> str | None:
    """Checked here, so that a wrong one is refused and not found out later."""
    if load is None:
        return None
    text = f"{load:g}" if isinstance(load, float) else load
    if len(text.encode()) > MAX_LOAD_BYTES:
        raise FieldError("load", f"expected at most {MAX_LOAD_BYTES} bytes; use fewer steps")
    try:
        if text.startswith("trace:"):
            raise BadInputError("a trace is a file of yours; give its spells as steps:SECONDSxRATE,...")
        parse_load(text)
    except BadInputError as error:
        raise FieldError("load", str(error)) from error
    return text


def submission_of(body: SubmissionBody, described: Callable[[Any], dict[str, Any]], unit_slots: int = 1) -> Submission:
    """`described` turns what names a pipeline into its document. A plan is all or nothing, unless it is said how little
    is enough."""
    if (body.pipeline is None) == (body.plan is None):
        raise FieldError("pipeline", "give either a pipeline or a plan")
    engine = _named(EngineName, body.engine, "engine")
    if engine is EngineName.ATTACHED:
        raise FieldError("engine", "an attached application registers itself; see penstock.attach")
    target = body.target.target()
    plan, desired, minimum = None, body.desired, body.minimum
    if body.plan is None:
        definition, pipeline = described(body.pipeline), body.pipeline
    else:
        plan = _plan(body.plan)
        definition = pipeline = described(plan.definition)
        target = ServiceTarget(target.rate or plan.rate, target.latency_ms)
        units = {(row.node, row.slot // unit_slots) for row in plan.placement}
        desired = len(units) if desired is None else desired
        minimum = desired if minimum is None else minimum
        engine = EngineName.PLACED if engine is EngineName.AUTO else engine
    options = run_options(body.options, engine)
    return Submission(
        name=body.name,
        pipeline=pipeline,
        definition=definition,
        fingerprint=fingerprint(definition),
        target=target,
        desired=desired,
        minimum=1 if minimum is None else minimum,
        maximum=body.maximum,
        priority=body.priority,
        engine=engine,
        load=load_text(body.load),
        elastic=elastic_options(body.elastic),
        plan=None if plan is None else plan.model_dump(mode="json"),
        options=options,
        choices=_choices(body, plan, options or {}),
    )


def _choices(body: SubmissionBody, plan: SavedPlan | None, options: Mapping[str, Any]) -> PlanChoices:
    """Return the policies a submission names; those of a plan are the ones it was made by."""
    named: dict[str, str | None] = {}
    for field, registry in (("allocator", ALLOCATORS), ("placer", PLACERS)):
        given = getattr(body, field)
        if given is not None:
            named[field] = check_policy_name(registry, given, field)
        elif plan is not None:
            of_plan = getattr(plan, field)
            named[field] = of_plan if of_plan.partition(":")[0] in registry.names() else None
    segmenter = options.get("segmenter") or (plan.segmenter if plan is not None else None)
    return PlanChoices(
        named.get("allocator"), named.get("placer"), segmenter, body.executor_memory_mb, body.executor_cores
    )


def run_options(given: dict[str, Any] | None, engine: EngineName) -> dict[str, Any] | None:
    """Return options of runs by their present names, checked for the engine that will run the pipeline."""
    if not given:
        return None
    runs_on = PLACED if engine is EngineName.PLACED else FUSED
    try:
        values = read_options(given, "options", Appears.HTTP)
        if "engine" in values:
            raise BadInputError("engine: give it beside the options, as the field 'engine'")
        RunConfig(**values).for_engine(runs_on)
    except BadInputError as error:
        raise FieldError("options", str(error).removeprefix("options: ")) from error
    for key, value in values.get("settings", {}).items():
        if is_secret(key) or secret_in(value) is not None:
            raise FieldError("options", f"settings: '{key}' holds a secret and would be stored; set it for the driver")
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    if len(json.dumps(plain)) > MAX_LOAD_BYTES:
        raise FieldError("options", f"expected at most {MAX_LOAD_BYTES} bytes")
    return plain


def elastic_options(body: ElasticBody | bool | None) -> dict[str, Any] | None:
    """Options as plain values, checked: a forecast that is not known, or a veto that is not there, is refused."""
    if body is None:
        return None
    if isinstance(body, bool):
        return {"enabled": body}
    options = {name: value for name, value in body.model_dump().items() if value is not None}
    if "veto" in options:
        if not CODE.fullmatch(options["veto"]):
            raise FieldError("elastic.veto", f"'{options['veto'][:40]}': expected module:attribute of a function")
        USER_CODE.check(options["veto"], "elastic.veto")
    checked_options(options)
    return options


def fingerprint(definition: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


def _plan(plan: str | dict[str, Any]) -> SavedPlan:
    try:
        return read_plan(Path(plan)) if isinstance(plan, str) else parse_plan(plan, "plan")
    except BadInputError as error:
        raise FieldError("plan", str(error).removeprefix("plan: ")) from error


def _named(choices: type[E], given: str, field: str) -> E:
    try:
        return one_of(choices, given, field)
    except BadInputError as error:
        raise FieldError(field, str(error)) from error


_NEEDED = {"above": "a threshold", "field": "the name of a field", "share": "a share"}
_CONDITION = ("above", "below", "share", "field")


def trigger_of(body: TriggerBody) -> Trigger:
    """`kind` is a kind of `control.core.trigger_kinds`, or module:attribute of a function over the readings."""
    code = body.kind if CODE.fullmatch(body.kind) else ""
    if not code and body.kind.partition(":")[0] not in trigger_kind_names():
        raise FieldError("kind", f"unknown kind '{body.kind[:40]}'; {nearest(body.kind, trigger_kind_names())}")
    name = CODE_TRIGGER if code else body.kind
    try:
        kind = find_kind(name)
    except BadInputError as error:
        raise FieldError("kind", str(error)) from error
    for needed in kind.needs:
        if getattr(body, needed) is None:
            raise FieldError(needed, f"{name} needs {_NEEDED[needed]}")
    given = _fields_of(name, body)
    if code:
        USER_CODE.check(code, "kind")
    return _checked(Trigger(0, name, code=code, **given))


def amended_trigger(trigger: Trigger, body: TriggerAmendBody) -> Trigger:
    return _checked(replace(trigger, **_fields_of(trigger.kind, body)))


def _fields_of(name: str, body: TriggerBody | TriggerAmendBody) -> dict[str, Any]:
    """Return the fields that are given. Raise `FieldError` if the kind reads one of them not at all."""
    kind = find_kind(name)
    given = {field: value for field, value in body.model_dump(exclude={"kind"}).items() if value is not None}
    for field in _CONDITION:
        if field in given and field not in (*kind.needs, *kind.takes):
            raise FieldError(field, f"{name} has no {field}; leave it out")
    return given


def _checked(trigger: Trigger) -> Trigger:
    on_at = find_kind(trigger.kind).threshold(trigger)
    if trigger.below is not None and trigger.below > on_at:
        raise FieldError("below", f"{trigger.below:g} is above what switches the trigger on, {on_at:g}")
    return trigger


def policy_of(body: PolicyBody, now: Policy) -> Policy:
    if body.model_dump(exclude_none=True) == {}:
        raise FieldError("sharing", "nothing to change; give a sharing policy, a placer, an allocator or a segmenter")
    given: dict[str, Any] = {
        name: check_policy_name(registry, getattr(body, name), name)
        for name, registry in (
            ("sharing", SHARERS),
            ("placer", PLACERS),
            ("allocator", ALLOCATORS),
            ("segmenter", SEGMENTERS),
        )
        if getattr(body, name) is not None
    }
    rescheduling = now.rescheduling if body.sharing is None else Rescheduling.LIVE
    if body.rescheduling is not None:
        rescheduling = _named(Rescheduling, body.rescheduling, "rescheduling")
    default_priority = body.default_priority or now.default_priority
    return replace(now, **given, rescheduling=rescheduling, default_priority=default_priority)


def check_policy_name(registry: Registry[Any], name: str, field: str) -> str | None:
    """Return the name of a policy with its options if there is one; None for `default`."""
    if name == "default" and field != "sharing":
        return None
    try:
        registry.create(name)
    except BadInputError as error:
        raise FieldError(field, str(error)) from error
    return name


# Bodies of attached applications. Counts are of slots; an executor of two cores is two.


Slots = Annotated[int, Field(ge=0, le=MOST_UNITS, strict=True)]
Size = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False, strict=True)]
Sentence = Annotated[str, Field(max_length=2000, strict=True)]


class ApplicationBody(Spec):
    name: PipelineName
    target: TargetBody = TargetBody()
    minimum: Units = 1
    maximum: Units | None = None
    priority: Level | None = None


class ReadingsBody(Spec):
    """Metrics of the one list, as far as an application knows them."""

    rate: Size | None = None
    offered_rate: Size | None = None
    backlog: Size | None = None
    latency_ms: Size | None = None
    busy: Size | None = None

    def known(self) -> dict[str, float]:
        return {str(Metric(name)): value for name, value in self.model_dump().items() if value is not None}


class AdviceBody(Spec):
    limit: Text
    what_to_do: Sentence
    evidence: Annotated[tuple[Sentence, ...], Field(max_length=20)] = ()
    target_rate: Size
    most_rate_now: Size
    headroom: Number
    batch_seconds: Size
    max_offsets_per_trigger: Size
    needed: Slots | None = None
    """None: no number is enough."""
    useful: Slots | None = None
    acts: bool = True
    """Whether its executors follow; else this is advice only."""
    why_not: StrictStr | None = None


class ReportBody(Spec):
    held: Slots
    wanted: Units
    why: Sentence
    values: ReadingsBody = ReadingsBody()
    serial: Annotated[int, Field(ge=-1, le=2**53, strict=True)] = -1
    nodes: Annotated[dict[Name, Slots], Field(max_length=10_000)] | None = None
    advice: AdviceBody | None = None
