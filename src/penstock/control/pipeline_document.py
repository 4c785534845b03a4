"""A submitted pipeline as a plain document. Code is imported in a process of its own: what hangs, exits or breaks there
does not reach the controller. `python -m penstock.control.pipeline_document` is that process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.base.errors import BadInputError, PenstockError
from penstock.control.errors import FieldError
from penstock.dataflow.code import parse_pipeline, pipeline_document, read_pipeline
from penstock.inputs.finders import builtin_pipeline, find_code_in, find_pipeline, known_pipelines, logic_of

IMPORT_SECONDS = 30.0
MARK = "penstock-pipeline:"
"""Before the document on standard output: what the user's code prints while it is imported is not it."""


def described(pipeline: Any, folder: Path | None = None, *, to_run: bool = False) -> dict[str, Any]:
    """From the name of a built-in pipeline, a document, a path, or `module:attribute` (found from `folder` too).
    `to_run`: the code it names must be there and import."""
    try:
        if isinstance(pipeline, dict):
            document = pipeline_document(parse_pipeline(pipeline, "pipeline"))
        elif str(pipeline) in known_pipelines():
            return pipeline_document(builtin_pipeline(str(pipeline)))
        elif Path(str(pipeline)).suffix in {".yaml", ".yml", ".json"}:
            document = pipeline_document(read_pipeline(Path(str(pipeline))))
            folder = Path(str(pipeline)).resolve().parent
        elif ":" not in str(pipeline):
            return pipeline_document(find_pipeline(str(pipeline)))
        else:
            return _imported(str(pipeline), str(pipeline), folder, to_run=to_run)
    except BadInputError as error:
        raise FieldError("pipeline", str(error).removeprefix("pipeline: ")) from error
    return _imported(document["name"], document, folder, to_run=True) if to_run else document


def _imported(name: str, given: str | dict[str, Any], folder: Path | None, *, to_run: bool) -> dict[str, Any]:
    """In a process of its own, which is told on its standard input what to look at."""
    command = [sys.executable, "-P", "-m", "penstock.control.pipeline_document"]
    try:
        answer = subprocess.run(  # noqa: S603 - whoever has the token may name code; it runs apart from us
            command,
            input=json.dumps({"pipeline": given, "to_run": to_run}),
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            cwd=folder,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        raise FieldError("pipeline", f"'{name}' took more than {IMPORT_SECONDS:g} s to import") from error
    except (OSError, ValueError) as error:
        raise FieldError("pipeline", f"'{name}' cannot be imported: {error}") from error
    for line in answer.stdout.splitlines():
        if line.startswith(MARK):
            document: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return document
    last = (answer.stderr.strip().splitlines() or [f"its process ended with {answer.returncode}"])[-1]
    raise FieldError("pipeline", last.removeprefix("pipeline: "))


def main() -> int:
    asked = json.load(sys.stdin)
    given = asked["pipeline"]
    find_code_in(Path.cwd())
    try:
        pipeline = parse_pipeline(given, "pipeline") if isinstance(given, dict) else find_pipeline(given)
        if asked["to_run"]:
            logic_of(pipeline)
    except PenstockError as error:
        print(" ".join(str(error).splitlines()), file=sys.stderr)
        return 1
    print(MARK + json.dumps(pipeline_document(pipeline)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
