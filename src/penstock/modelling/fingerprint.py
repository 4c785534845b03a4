"""A fingerprint of the code of an operator: the same for the same code, different if the code was changed.

Code of a module, which a file can name (`run: module:attribute`), is read, not imported (`source_text`): planning a
pipeline from elsewhere must not run it. It has the same fingerprint if the pipeline was built in Python. Other code
given in Python counts as compiled, with the objects it refers to (`reach`).
"""

from __future__ import annotations

import ast
import hashlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.dataflow.code import said_in_a_file
from penstock.dataflow.formats import Reading, Writing, find_format, reading_of, writing_of
from penstock.dataflow.logic import Logic, Per
from penstock.dataflow.pipeline import Kind
from penstock.modelling.code_text import UNREADABLE, file_of, text_of_code, text_of_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.modelling.model import MeasuredOn


LENGTH = 16
"""Hex digits that are kept."""


class _Named(NamedTuple):
    """Code as a file names it."""

    address: str
    per: Per | None
    schema: str | None


def fingerprint(
    operator: Operator, code: Logic | None = None, beside: Path | None = None, measured: MeasuredOn | None = None
) -> str | None:
    """Return the fingerprint of the code an operator names or has, else of `code`; None if it cannot be read. `beside`:
    a place of its modules, after all places Python looks in. A fingerprint of what was `measured` is kept if it also
    belongs to this code, made in another way: without `per` beside it, or by an earlier version."""
    folders = [*sys.path, *([] if beside is None else [str(beside)])]
    logic = _given(operator) or code
    prints = _prints(operator, logic, folders, None if measured is None else measured.per)
    now = next(prints, None)
    if now is None or measured is None or measured.code in (None, now):
        return now
    is_of_this_code = measured.code in prints or measured.code in _prints_of_before(operator, logic, folders)
    return measured.code if is_of_this_code else now


def _given(operator: Operator) -> Logic | None:
    """In Python."""
    given = operator.logic
    return given if isinstance(given, Logic) or given is None else Logic(given)


def _prints(operator: Operator, logic: Logic | None, folders: list[str], measured_per: Per | None) -> Iterator[str]:
    """The one that counts first, then others the same code may have."""
    if operator.aggregate is not None:
        yield _digest(operator.per, operator.schema_, operator.aggregate.model_dump_json(), [])
        return
    if operator.chain:
        yield from _print_of_chain(operator, folders)
        return
    named = _named(operator, logic)
    source = None if named is None else text_of_source(named.address, folders)
    if named is not None and source is not None:
        is_called_as_measured = measured_per is not None and measured_per in (named.per, logic and logic.per)
        for per in (named.per, *((None, measured_per) if is_called_as_measured else ())):
            yield _digest(per, named.schema, None, [source])
    if logic is not None:
        yield _digest(None, None, None, text_of_code(logic))


def _print_of_chain(operator: Operator, folders: list[str]) -> Iterator[str]:
    """Yield the fingerprints of all parts of a chain; those without code of their own are reference tasks."""
    parts = [
        next(_prints(part, _given(part), folders, None), None)
        if part.run is not None or part.logic is not None
        else part.model or part.name
        for part in operator.chain
    ]
    if None not in parts:
        yield _digest(operator.per, operator.schema_, None, map(str, parts))


def _named(operator: Operator, logic: Logic | None) -> _Named | None:
    """None: it is no function of a module."""
    if operator.logic is None and operator.run is not None:
        return _Named(operator.run, operator.per, operator.schema_)
    if logic is None:
        return None
    only_code = {"logic": logic, "code_at": None, "frame_code": None, "write_code": None}
    keys: dict[str, Any] | None = said_in_a_file(operator.model_copy(update=only_code))
    return None if keys is None else _Named(keys["run"], keys.get("per"), keys.get("schema"))


def _prints_of_before(operator: Operator, logic: Logic | None, folders: list[str]) -> Iterator[str]:
    """Yield fingerprints as earlier versions made them, which did not read other modules: models they measured keep
    them."""
    named = _named(operator, logic)
    if named is not None and (text := _source_of_before(named.address, folders)) is not None:
        yield _digest(named.per, named.schema, None, [text])
    if logic is not None:
        kept = list(text_of_code(logic, as_before=True))
        yield _digest(None, None, None, kept)
        yield _digest(operator.per, operator.schema_, None, kept)


def _source_of_before(address: str, folders: list[str]) -> str | None:
    """The last plain statement of its module that makes each name."""
    module, _, attribute = address.partition(":")
    file = file_of(module, folders)
    try:
        statements = [] if file is None else ast.parse(file.read_text("utf-8")).body
    except UNREADABLE:
        return None
    made_by: dict[str, ast.stmt] = {}
    for statement in statements:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made_by[name] = statement
            case ast.Assign(targets=targets):
                made_by |= {target.id: statement for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                made_by[name] = statement
    wanted, reached = [attribute], dict[str, str]()
    while wanted:
        name = wanted.pop()
        if name in made_by and name not in reached:
            reached[name] = ast.dump(made_by[name])
            wanted += [node.id for node in ast.walk(made_by[name]) if isinstance(node, ast.Name)]
    return "\n".join(reached[name] for name in sorted(reached)) if attribute in reached else None


def _digest(per: Per | None, schema: str | None, aggregate: str | None, parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join([repr((per, schema, aggregate)), *parts]).encode()).hexdigest()[:LENGTH]


# The shape of a pipeline: equal for pipelines that run alike as a whole, apart from the code of their operators.
#
# It covers the streams and the part of their sender's tuples they take, and reads and writes as far as a rehearsal does
# them (`penstock.profiling.rehearsal`): files in their format with its options, wherever they are, and the max files
# per batch; every other sink counts, and every other source that is not the load generator is replayed. Selectivities
# are left out: they only describe the code's behaviour.


SHAPE_LENGTH = 16
"""Hex digits that are kept."""
_MOST_FILES = "maxfilespertrigger"


def shape_of(pipeline: Pipeline) -> str:
    """The same for the same shape, in whatever order it is declared."""
    streams = sorted(f"{stream.sender} {stream.receiver} {stream.weight!r}" for stream in pipeline.streams)
    ends = sorted(
        _described(operator) for operator in pipeline.operators.values() if operator.kind is not Kind.OPERATOR
    )
    return hashlib.sha256("\n".join([*streams, *ends]).encode()).hexdigest()[:SHAPE_LENGTH]


def _described(operator: Operator) -> str:
    files = file_end(operator)
    if files is not None:
        most_files = [value for name, value in operator.options.items() if name.lower() == _MOST_FILES]
        what = f"{files.format} {sorted(files.options.items())} {most_files}"
    elif operator.kind is Kind.SOURCE:
        what = "load" if reading_of(operator).is_load else "replayed"
    else:
        what = "counts"
    return f"{operator.kind} {operator.name} {what} {operator.watermark!r} {operator.mode}"


ABOUT_THE_FOLDER = frozenset(
    {"path", "maxFilesPerTrigger", "maxBytesPerTrigger", "maxFileAge", "latestFirst", "pathGlobFilter", "cleanSource"}
    | {"recursiveFileLookup", "sourceArchiveDir", "modifiedBefore", "modifiedAfter", "basePath"}
)
"""Options of files that select files and do not describe their contents."""


def file_end(operator: Operator) -> Reading | Writing | None:
    """Return how a source or sink of files reads or writes, without the place of the files; None if it is not files."""
    if operator.kind is Kind.OPERATOR:
        return None
    end: Reading | Writing = reading_of(operator) if operator.kind is Kind.SOURCE else writing_of(operator)
    if not find_format(end.format).is_files:
        return None
    return replace(end, options={name: value for name, value in end.options.items() if name not in ABOUT_THE_FOLDER})
