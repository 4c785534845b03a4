"""The code of an operator, wherever the pipeline names it, and its name in a file.

`module:attribute` is a function of a module; `module:pipeline.operator` is the code of that operator in a pipeline
built in Python: a lambda, or a function with the options of its decorator.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import Name, Spec, check, read_document
from penstock.dataflow.builder import PipelineBuilder, refuse_unread_keys
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import (
    UNCONSTRAINED,
    Kind,
    Operator,
    Pipeline,
    PipelineConstraints,
    Stream,
    topological_order,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path


ONLY_IN_PYTHON = "only-in-python"
"""Stands in place of a module if a file cannot name the code: such a file can be planned but not run."""
_SAID_BESIDE = {"per": "per", "schema": "schema_", "timeout_seconds": "timeout_seconds", "on_error": "on_error"}


def code_of(operator: Operator) -> Logic | None:
    """Return the code given in Python, or named by `run`, with the options beside it; None if the operator has no
    code."""
    if operator.logic is not None:
        given = operator.logic
        return given if isinstance(given, Logic) else Logic(given)
    if operator.run is None:
        return None
    beside = {key: getattr(operator, field) for key, field in _SAID_BESIDE.items()}
    settings = {key: value for key, value in beside.items() if value is not None}
    try:
        return find_logic(operator.run).with_fields(**settings)
    except BadInputError as error:
        raise BadInputError(f"operator '{operator.name}': {error}") from error


def has_code(operator: Operator) -> bool:
    """Whether there is code of its own, which makes it no reference task."""
    return operator.run is not None or operator.logic is not None or bool(operator.chain)


def per_of(operator: Operator) -> Per | None:
    """Return the kind of a call of its code. Code that `run` names may declare the kind itself; it is not imported
    here, so the answer is None if the operator declares none. An operator without code is a reference task, which gets
    rows."""
    if operator.logic is not None:
        return operator.logic.per if isinstance(operator.logic, Logic) else Per.ROW
    return operator.per or (None if operator.run is not None else Per.ROW)


def is_sparks_own(operator: Operator) -> bool:
    """Return whether the operator is part of Spark's query, as far as the pipeline declares it."""
    return operator.aggregate is not None or per_of(operator) is Per.DATAFRAME


def fused_only(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the operators that run only in Spark's query: functions of DataFrames, as far as the pipeline declares
    them. Aggregations run placed as well."""
    operators = pipeline.operators.values()
    return tuple(o.name for o in operators if o.aggregate is None and per_of(o) is Per.DATAFRAME)


def why_not_placed(operators: Sequence[str]) -> str:
    """Return why a pipeline with these operators, which run only in Spark's query, cannot run placed."""
    what = "is a function" if len(operators) == 1 else "are functions"
    return f"cannot run placed: {', '.join(operators)} {what} of DataFrames, which only a fused run executes"


def frame_function(operator: Operator) -> Callable[[Any], Any] | None:
    """Return the function that makes the DataFrame of a source."""
    return _function(operator, operator.frame_code, operator.frame, "frame")


def write_function(operator: Operator) -> Callable[[Any, int], None] | None:
    """Return the function that takes the batches of a sink."""
    return _function(operator, operator.write_code, operator.write, "write")


def _function(operator: Operator, code: Any, address: str | None, key: str) -> Callable[..., Any] | None:
    if code is not None or address is None:
        return code  # type: ignore[no-any-return] # the builder takes functions only
    try:
        return _find_function(address, key)
    except BadInputError as error:
        raise BadInputError(f"operator '{operator.name}': {error}") from error


def find_logic(address: str) -> Logic:
    """The code that `run` names; a plain function is code per row."""
    code = _find_function(address, "run")
    return code if isinstance(code, Logic) else Logic(code)


def _find_function(address: str, key: str) -> Callable[..., Any]:
    """Return the function that `key` of an operator names."""
    module, colon, attribute = address.partition(":")
    if not colon:
        raise BadInputError(f"{key} '{address}': expected module:attribute")
    if module == ONLY_IN_PYTHON:
        raise BadInputError(
            f"{key} '{address}': this code was given in Python, and no file can name it: make it a function of a "
            "module (@penstock.logic(open=...) says what it opens), or name the pipeline itself as module:attribute"
        )
    pipeline, dot, operator = attribute.partition(".")
    if dot and pipeline.isidentifier():
        return _code_in(f"{module}:{pipeline}", operator, key)
    try:
        function = getattr(import_module(module), attribute)
    except Exception as error:  # the user's module may raise anything while it is imported
        raise BadInputError(f"{key} '{address}': {type(error).__name__}: {error}") from error
    if not callable(function):
        raise BadInputError(f"{key} '{address}': expected a function, found {type(function).__name__}")
    return function  # type: ignore[no-any-return] # whatever it is, it can be called


def _code_in(address: str, name: str, key: str) -> Callable[..., Any]:
    """Return the code that an operator of a pipeline built in Python has as `key`."""
    where = f"{key} '{address}.{name}'"
    try:
        pipeline = pipeline_at(address)
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
    operator = pipeline.operators.get(name)
    if operator is None:
        raise BadInputError(f"{where}: no such operator in that pipeline; {nearest(name, pipeline.operators)}")
    code = _given_in_python(operator).get(key)
    if code is None:
        raise BadInputError(f"{where}: that operator was not given such code in Python")
    return code  # type: ignore[no-any-return] # the builder takes functions only


def pipeline_at(address: str) -> Pipeline:
    """The one at `module:attribute`: a pipeline, a builder, or a function that needs no argument and makes one."""
    module, _, attribute = address.partition(":")
    try:
        named = getattr(import_module(module), attribute)
        if inspect.isfunction(named) and _needs_nothing(named):
            named = named()
    except Exception as error:  # the user's code may raise anything while it is imported or called
        raise BadInputError(f"pipeline '{address}': {type(error).__name__}: {error}") from error
    if isinstance(named, PipelineBuilder):
        named = named.build()
    if not isinstance(named, Pipeline):
        raise BadInputError(
            f"pipeline '{address}': expected a Pipeline, a builder, or a function that makes one of nothing, "
            f"found {type(named).__name__}"
        )
    operators = [
        operator.model_copy(update={"code_at": f"{address}.{name}"}) if _given_in_python(operator) else operator
        for name, operator in named.operators.items()
    ]
    return Pipeline.of(named.name, operators, named.streams, named.constraints)


def _needs_nothing(function: Callable[..., Any]) -> bool:
    """Whether it can be called without an argument."""
    always_there = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(
        parameter.kind in always_there or parameter.default is not inspect.Parameter.empty
        for parameter in inspect.signature(function).parameters.values()
    )


def said_in_a_file(operator: Operator) -> dict[str, str | float] | None:
    """Return the keys by which a file names code that was given in Python; None if a file cannot name it."""
    if any(said_in_a_file(part) is None for part in operator.chain):
        return None
    keys: dict[str, str | float] = {}
    for key, code in _given_in_python(operator).items():
        address = address_of(code) or operator.code_at
        if address is None:
            return None
        keys[key] = address
    code = code_of(operator) if operator.logic is not None else None
    if code is None:
        return keys
    # settings next to a pipeline's own code are those it was given: do not resolve its address, which leads there
    named = Logic(code.function) if keys["run"] == operator.code_at else find_logic(str(keys["run"]))
    wanted = {key: getattr(code, key) for key in _SAID_BESIDE}
    return {**keys, **{key: value for key, value in wanted.items() if value != getattr(named, key)}}


def said_of_unnamed(operator: Operator) -> dict[str, str]:
    """Return keys that make a run of the file fail with the reason, for code that a file cannot name."""
    return dict.fromkeys(_given_in_python(operator), f"{ONLY_IN_PYTHON}:{operator.name}")


def _given_in_python(operator: Operator) -> dict[str, Any]:
    codes = {"frame": operator.frame_code, "write": operator.write_code, "run": operator.logic}
    return {key: code for key, code in codes.items() if code is not None}


def address_of(code: Any) -> str | None:
    """Return module:attribute if a function of a module (or a `Logic`) is found again by importing it. None if it has
    no such name, or if the value found there differs in something that a file cannot state."""
    function = code.function if isinstance(code, Logic) else code
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in {None, "__main__"} or not name.isidentifier():
        return None
    there = getattr(sys.modules.get(module), name, None)
    if not (there is function or (isinstance(there, Logic) and there.function is function)):
        return None
    return f"{module}:{name}" if _can_be_said_beside(code, there) else None


def _can_be_said_beside(code: Any, there: Any) -> bool:
    """Return whether code differs from the code found by its name only in options that a file can add."""
    wanted, named = (given if isinstance(given, Logic) else Logic(given) for given in (code, there))
    has_less = any(getattr(wanted, key) is None and getattr(named, key) is not None for key in _SAID_BESIDE)
    return (wanted.open, wanted.close) == (named.open, named.close) and not has_less


NOT_IN_FILES = ("logic", "frame_code", "write_code", "code_at")


class PipelineFile(Spec):
    name: Name
    operators: dict[str, Operator]
    streams: tuple[Stream, ...] = ()
    constraints: PipelineConstraints = UNCONSTRAINED

    @model_validator(mode="before")
    @classmethod
    def _name_operators_by_their_key(cls, data: Any) -> Any:
        operators = data.get("operators") if isinstance(data, dict) else None
        if not isinstance(operators, dict):
            return data
        named = {}
        for name, given in operators.items():
            fields = {} if given is None else given
            if isinstance(fields, dict):
                for key in ("name", *NOT_IN_FILES):
                    if key in fields:
                        raise ValueError(f"operators.{name}: unknown key '{key}'; an operator is named by its key")
                fields = {"name": name, **fields}
            named[name] = fields
        return {**data, "operators": named}


def read_pipeline(path: Path) -> Pipeline:
    """Read a pipeline that a person wrote: keys that have no effect are rejected."""
    pipeline = parse_pipeline(read_document(path), str(path))
    for operator in pipeline.operators.values():
        try:
            refuse_unread_keys(operator)
        except BadInputError as error:
            raise BadInputError(f"{path}: {error}") from error
    return pipeline


def parse_pipeline(data: Any, where: str) -> Pipeline:
    """A pipeline from the plain contents of a file; `where` names the file in complaints."""
    spec = check(PipelineFile, data, where)
    try:
        return Pipeline.of(spec.name, spec.operators.values(), spec.streams, spec.constraints)
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error


def _operator_document(operator: Operator) -> dict[str, Any]:
    fields = operator.model_dump(mode="json", by_alias=True, exclude={"name", "chain"}, exclude_defaults=True)
    chain = [{"name": part.name, **_operator_document(part)} for part in operator.chain]
    code = said_in_a_file(operator)
    return {**fields, **(said_of_unnamed(operator) if code is None else code), **({"chain": chain} if chain else {})}


def pipeline_document(pipeline: Pipeline) -> dict[str, Any]:
    """Return the contents of the file that describes `pipeline`: only values that differ from the defaults. Code given
    in Python is named; code that cannot be named makes a run of the file fail with the reason."""
    operators = {operator.name: _operator_document(operator) for operator in pipeline.operators.values()}
    streams = [stream.model_dump(mode="json", by_alias=True, exclude_defaults=True) for stream in pipeline.streams]
    constraints = pipeline.constraints.model_dump(mode="json", exclude_defaults=True)
    document = {"name": pipeline.name, "operators": operators, "streams": streams}
    return {**document, "constraints": constraints} if constraints else document


# Which operators of a fused slot share threads.
#
# The engine's rule (`penstock.runtime.steps.plan_pools`), for planning, which knows no engine: neighbours with one
# thread each stay in one thread; an operator with several has its own, so that its waiting is another's working time.


_ENTRANCE = -1

Crews = tuple[tuple[str, ...], ...]


def crews_of(pipeline: Pipeline, threads: Mapping[str, int], sparks_own: Collection[str]) -> Crews:
    """`sparks_own` operators are in none; what they send enters a slot anew."""
    crews: list[tuple[list[str], int]] = []
    crew_of: dict[str, set[int]] = {}
    level: dict[str, int] = {}
    head: dict[int, int] = {}
    """By how many of Spark's own operators came before: the crew with one thread that takes what enters."""
    for name in topological_order(pipeline):
        senders = [stream.sender for stream in pipeline.inputs(name)]
        level[name] = max((level[sender] for sender in senders), default=0) + (name in sparks_own)
        before = set[int]().union(*(crew_of[sender] for sender in senders)) or {_ENTRANCE}
        if name in sparks_own:
            crew_of[name] = {_ENTRANCE}
            continue
        if not _works(pipeline, name):
            crew_of[name] = before
            continue
        entered = head.get(level[name], _ENTRANCE)
        count = threads.get(name, 1)
        crew = min(entered if crew_before == _ENTRANCE else crew_before for crew_before in before)
        joins = count == 1 and crew != _ENTRANCE and crews[crew][1] == 1 and before <= {crew, _ENTRANCE}
        if joins and (_ENTRANCE not in before or crew == entered):
            crews[crew][0].append(name)
        else:
            crews.append(([name], count))
            crew = len(crews) - 1
            if count == 1 and before == {_ENTRANCE}:
                head[level[name]] = crew
        crew_of[name] = {crew}
    return tuple(tuple(names) for names, _ in crews)


def _works(pipeline: Pipeline, name: str) -> bool:
    operator = pipeline.operators[name]
    return operator.kind is Kind.OPERATOR or operator.run is not None or operator.logic is not None
