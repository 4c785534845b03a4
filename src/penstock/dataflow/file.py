"""Pipelines as YAML or JSON files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from penstock.dataflow.code import said_in_a_file, said_of_unnamed
from penstock.dataflow.constraints import UNCONSTRAINED, PipelineConstraints
from penstock.dataflow.pipeline import Operator, Pipeline, Stream
from penstock.dataflow.unread_keys import refuse_unread_keys
from penstock.errors import BadInputError
from penstock.files import Name, Spec, check, read_document

if TYPE_CHECKING:
    from pathlib import Path


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
    """As somebody wrote it: what nothing would read is refused."""
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
    """The plain contents of the file that describes `pipeline`; only what differs from the defaults. Code given in
    Python is named; where it cannot be, whoever runs the file is told so."""
    operators = {operator.name: _operator_document(operator) for operator in pipeline.operators.values()}
    streams = [stream.model_dump(mode="json", by_alias=True, exclude_defaults=True) for stream in pipeline.streams]
    constraints = pipeline.constraints.model_dump(mode="json", exclude_defaults=True)
    document = {"name": pipeline.name, "operators": operators, "streams": streams}
    return {**document, "constraints": constraints} if constraints else document
