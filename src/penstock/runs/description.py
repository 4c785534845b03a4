"""`run.json`: which pipeline runs, with which options, so that another process can resume the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator

from penstock.base.errors import BadInputError
from penstock.base.files import Amount, Count, Name, Spec, check
from penstock.runs.config import FUSED, PLACED, RunConfig

FORMAT = 3
"""Formats 1 and 2 are those of version 0.1, in which options stood beside everything else."""


def _config(value: Any) -> RunConfig:
    if isinstance(value, RunConfig):
        return value
    try:
        return RunConfig.of_json(value, "options", warn=False)
    except BadInputError as error:
        raise ValueError(str(error).removeprefix("options: ")) from error


if TYPE_CHECKING:
    ConfigField = RunConfig
else:
    ConfigField = Annotated[Any, PlainValidator(_config), PlainSerializer(RunConfig.to_json)]
"""Options of a run in a file. (pydantic would read the annotations of a dataclass by itself.)"""


class RunDescription(Spec):
    """The contents of `run.json`. Options are written as they were resolved: slots, checkpoint and memory have values
    even if the user gave none."""

    format: Count = FORMAT
    run: Name
    pipeline: Name
    config: ConfigField
    given: str | None = None
    """Name of the pipeline or plan to resume with: a built-in name, a file, or module:attribute."""
    definition: dict[str, Any] | None = None
    """The pipeline itself, unless its code exists only in Python."""
    only_in_python: bool = False
    started_in: str | None = None
    """Folder in which relative paths of the pipeline, and modules, are looked up."""
    threads: dict[str, Count] = Field(default_factory=dict)
    """Threads of each operator in one slot, of a fused run."""
    most_rows: Count = 1_000_000
    batch_seconds: Amount | None = None
    started: str = ""
    began: float = 0.0
    """When the load of a placed run began, in seconds since the epoch; rows due while no process runs it are late."""

    @property
    def engine(self) -> str:
        return self.config.engine

    @property
    def slots(self) -> int:
        """Slots of a fused run."""
        return self.config.slots or 1


_FORMER_FACTS = frozenset(RunDescription.model_fields) - {"config", "format"}
_FORMER_VERSION = 2
"""Placed runs of version 0.1 say `version`; those without it keep their commits in another way."""


def parse_description(document: Any, where: str) -> RunDescription:
    """Return the description that a `run.json` of this version or of 0.1 holds."""
    if not isinstance(document, dict):
        raise BadInputError(f"{where}: expected the description of a run, found {type(document).__name__}")
    written = document.get("format", document.get("version"))
    if type(written) is int and written > FORMAT:
        raise BadInputError(
            f"{where}: a run of a newer Penstock (format {written}, this one knows up to {FORMAT}); update Penstock, "
            "or start the run in another folder"
        )
    return check(RunDescription, document if "config" in document else _of_0_1(document, where), where)


def _of_0_1(document: dict[str, Any], where: str) -> dict[str, Any]:
    engine = FUSED if document.get("engine") == FUSED else PLACED
    if engine == PLACED and document.get("version") != _FORMER_VERSION:
        raise BadInputError(
            f"{where}: a run of another version of Penstock ({document.get('version') or '0.1'}); this one cannot "
            "resume it: start it in another folder"
        )
    facts = {key: value for key, value in document.items() if key in _FORMER_FACTS}
    config = {
        "rate" if key == "load" else key: value
        for key, value in document.items()
        if key not in _FORMER_FACTS and key not in {"format", "version"}
    }
    return {**facts, "config": {**config, "engine": engine}}
