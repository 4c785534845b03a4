"""Files of published values: their shape, and those that come with Penstock."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from penstock.base.errors import BadInputError
from penstock_lab.published_values import NOTHING, parse_published, read_published
from penstock_lab.registry import EXPERIMENTS, LIVE

FILES = sorted(entry.name.removesuffix(".json") for entry in (resources.files("penstock_lab") / "published").iterdir())


def text(**value: object) -> str:
    one = {"id": "v", "place": "Table 1", "how": "from a table", **value}
    return json.dumps({"document": "d", "title": "t", "values": [one]})


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({}, "expected a value, a range"),
        ({"value": 1, "low": 0}, "not both"),
        ({"low": 3, "high": 2}, "low: expected at most high, found 3 and 2"),
        ({"value": 1, "how": "derived from stated values"}, "must say from what"),
        ({"value": 1, "how": "guessed"}, "how"),
        ({"value": 1, "palce": "x"}, "unknown key 'palce'; did you mean 'place'"),
        ({"value": 1, "place": ""}, "place"),
    ],
)
def test_values_that_are_refused(value: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        parse_published(text(**value), "file")


def test_an_id_is_unique_and_known() -> None:
    value = {"id": "v", "place": "p", "how": "from a table", "value": 1}
    with pytest.raises(BadInputError, match="'v' appears twice"):
        parse_published(json.dumps({"document": "d", "title": "t", "values": [value, value]}), "file")
    with pytest.raises(BadInputError, match=r"no published value 'fig7\.linear\.50\.lsa\.slot'; did you mean"):
        _ = read_published("model-driven")["fig7.linear.50.lsa.slot"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"value": 1196, "unit": "% memory"}, "1,196 % memory"),
        ({"low": 33, "high": 50, "unit": "%"}, "33 to 50 %"),
        ({"low": 0.81}, "at least 0.81"),
        ({"high": 30, "unit": "%"}, "at most 30 %"),
        ({"claim": "A beats B"}, "A beats B"),
    ],
)
def test_values_as_people_read_them(value: dict[str, object], shown: str) -> None:
    assert str(parse_published(text(**value), "file")["v"]) == shown


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_comes_with_penstock_is_read_and_belongs_to_an_experiment(name: str) -> None:
    found = read_published(name)
    assert found.values
    known = {registry.create(one).published for registry in (EXPERIMENTS, LIVE) for one in registry.names()}
    assert name in known


def test_an_experiment_of_our_own_has_nothing_published() -> None:
    assert read_published(None) is NOTHING
