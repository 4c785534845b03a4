"""Published values, each with its place in the document and how it was obtained."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from importlib import resources
from typing import Annotated, Self

from pydantic import Field, model_validator

from penstock import BadInputError
from penstock.plugins import Name, Spec, check, nearest, parse_json

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Figure = Annotated[float, Field(allow_inf_nan=False)]


class How(StrEnum):
    """How a value was obtained from the document."""

    STATED = "stated in the text"
    TABLE = "from a table"
    PLOT = "read off a plot"
    DERIVED = "derived from stated values"


class Value(Spec):
    """One published number (`value`), range (`low`, `high`), or claim in words (`claim`)."""

    id: Name
    place: Text
    """Where in the document: "section 8.4.1, on Fig 7a"."""
    how: How
    value: Figure | None = None
    low: Figure | None = None
    high: Figure | None = None
    claim: Text | None = None
    unit: str = ""
    note: str = ""
    """How it was derived, or why it is to be doubted."""
    not_evidence: str = ""
    """Why agreement with it shows nothing: models or cases were made from it."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.value is None and self.low is None and self.high is None and self.claim is None:
            raise ValueError("expected a value, a range (low, high) or a claim")
        if self.value is not None and (self.low is not None or self.high is not None):
            raise ValueError("expected a value or a range (low, high), not both")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low: expected at most high, found {self.low:g} and {self.high:g}")
        if self.how is How.DERIVED and not self.note:
            raise ValueError("note: a derived value must say from what")
        return self

    @property
    def number(self) -> float:
        if self.value is None:
            raise BadInputError(f"published value '{self.id}' is not a single number")
        return self.value

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.value is not None:
            return f"{self.value:,g}{unit}"
        if self.low is not None and self.high is not None:
            return f"{self.low:,g} to {self.high:,g}{unit}"
        if self.low is not None:
            return f"at least {self.low:,g}{unit}"
        if self.high is not None:
            return f"at most {self.high:,g}{unit}"
        return self.claim or ""


class Published(Spec):
    """The file `published/NAME.json`."""

    document: Name
    title: Text
    values: tuple[Value, ...]

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        ids = [value.id for value in self.values]
        if len(set(ids)) < len(ids):
            twice = next(value_id for value_id in ids if ids.count(value_id) > 1)
            raise ValueError(f"values: the id '{twice}' appears twice")
        return self

    @cached_property
    def by_id(self) -> dict[str, Value]:
        return {value.id: value for value in self.values}

    def __getitem__(self, wanted: str) -> Value:
        if wanted not in self.by_id:
            raise BadInputError(f"{self.document}: no published value '{wanted}'; {nearest(wanted, self.by_id)}")
        return self.by_id[wanted]

    def get(self, wanted: str) -> Value | None:
        """For figures of which only some values are published."""
        return self.by_id.get(wanted)


NOTHING = Published(document="none", title="nothing published", values=())


def read_published(name: str | None) -> Published:
    """The values that come with Penstock, by the name of the file; None is an experiment of our own."""
    if name is None:
        return NOTHING
    text = (resources.files("penstock_lab") / "published" / f"{name}.json").read_text("utf-8")
    return parse_published(text, f"published/{name}.json")


def parse_published(text: str, where: str) -> Published:
    return check(Published, parse_json(text, where), where)
