"""Model files (JSON or YAML) and measurements from CSV."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from penstock.errors import BadInputError
from penstock.files import Name, Spec, check, describe, read_document, read_text
from penstock.modelling.model import MeasuredOn, Model, Point

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class ModelEntry(Spec):
    points: tuple[Point, ...]
    measured_on: MeasuredOn = MeasuredOn()


class ModelFile(Spec):
    about: str = ""
    models: dict[Name, ModelEntry] = Field(default_factory=dict)


def read_models(path: Path) -> list[Model]:
    """The models of one file, or of every model file in a folder in order of their names."""
    if not path.is_dir():
        return parse_models(read_document(path), str(path))
    files = sorted(file for file in path.iterdir() if file.suffix in {".json", ".yaml", ".yml"})
    if not files:
        raise BadInputError(f"{path}: no model file (.json or .yaml) in this folder")
    return [model for file in files for model in parse_models(read_document(file), str(file))]


def parse_models(data: Any, where: str) -> list[Model]:
    spec = check(ModelFile, data, where)
    if not spec.models:
        raise BadInputError(f"{where}: models: expected at least one model")
    try:
        return [Model(name, entry.points, entry.measured_on) for name, entry in spec.models.items()]
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error


def models_document(models: Iterable[Model], about: str = "") -> dict[str, Any]:
    """The plain contents of the file that holds `models`."""
    entries = {
        model.name: ModelEntry(points=model.points, measured_on=model.measured_on).model_dump(
            mode="json", exclude_defaults=True
        )
        for model in models
    }
    return {"about": about, "models": entries} if about else {"models": entries}


_COLUMNS = ("model", "threads", "rate", "cpu", "memory", "rate_spread", "cpu_spread", "memory_spread")
_PERCENT = ("cpu", "memory", "cpu_spread", "memory_spread")


def read_csv_models(path: Path) -> list[Model]:
    """Models from a table with a header: model, threads, rate, cpu, memory, and optional *_spread columns.

    A column of shares may be named with `_percent` behind (cpu_percent): its values are divided by 100.
    """
    reader = csv.DictReader(io.StringIO(read_text(path)), strict=True)
    known = {*_COLUMNS, *(f"{name}_percent" for name in _PERCENT)}
    header = [name.strip() for name in reader.fieldnames or []]
    given: set[str] = set()
    for name in header:
        if name not in known:
            raise BadInputError(f"{path}: header: unknown column '{name}'; expected {', '.join(_COLUMNS)}")
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
    reader.fieldnames = header
    points: dict[str, list[Point]] = {}
    try:
        for row in reader:
            where = f"{path}: line {reader.line_num}"
            points.setdefault(_cell(row, "model", where), []).append(_point(row, where))
    except csv.Error as error:
        raise BadInputError(f"{path}: line {reader.line_num}: not valid CSV: {error}") from error
    if not points:
        raise BadInputError(f"{path}: expected at least one row under the header")
    try:
        return [
            Model(
                name,
                tuple(sorted(found, key=lambda point: point.threads)),
                MeasuredOn(what=f"imported from {path.name}"),
            )
            for name, found in points.items()
        ]
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error


def _cell(row: dict[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadInputError(f"{where}: column '{name}' is empty")
    return value.strip()


def _point(row: dict[str, Any], where: str) -> Point:
    fields: dict[str, float | int] = {}
    if None in row or None in row.values():
        raise BadInputError(f"{where}: number of cells differs from the header")
    for column, cell in row.items():
        if column == "model" or (column.removesuffix("_percent").endswith("_spread") and not cell.strip()):
            continue
        text = _cell(row, column, where)
        try:
            number = float(text)
        except ValueError as error:
            raise BadInputError(f"{where}: column '{column}': expected a number, found '{text}'") from error
        name = column.removesuffix("_percent")
        fields[name] = number / 100 if name != column else number
    if not float(fields["threads"]).is_integer():
        raise BadInputError(f"{where}: column 'threads': expected a whole number, found {fields['threads']:g}")
    try:
        return Point.model_validate({**fields, "threads": int(fields["threads"])})
    except ValidationError as error:
        raise BadInputError(f"{where}: {describe(error)}") from error
