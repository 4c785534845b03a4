"""Pipelines as YAML or JSON files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from penstock.dataflow.pipeline import Operator, Pipeline, Stream
from penstock.errors import BadInputError
from penstock.files import Name, Spec, check, read_document

if TYPE_CHECKING:
    from pathlib import Path


class PipelineFile(Spec):
    name: Name
    operators: dict[str, Operator]
    streams: tuple[Stream, ...] = ()

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
                for key in ("name", "logic"):
                    if key in fields:
                        raise ValueError(f"operators.{name}: unknown key '{key}'; an operator is named by its key")
                fields = {"name": name, **fields}
            named[name] = fields
        return {**data, "operators": named}


def read_pipeline(path: Path) -> Pipeline:
    return parse_pipeline(read_document(path), str(path))


def parse_pipeline(data: Any, where: str) -> Pipeline:
    """A pipeline from the plain contents of a file; `where` names the file in complaints."""
    spec = check(PipelineFile, data, where)
    try:
        return Pipeline.of(spec.name, spec.operators.values(), spec.streams)
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error


def pipeline_document(pipeline: Pipeline) -> dict[str, Any]:
    """The plain contents of the file that describes `pipeline`; only what differs from the defaults."""
    operators = {}
    for operator in pipeline.operators.values():
        operators[operator.name] = operator.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)
    streams = [stream.model_dump(mode="json", by_alias=True, exclude_defaults=True) for stream in pipeline.streams]
    return {"name": pipeline.name, "operators": operators, "streams": streams}
