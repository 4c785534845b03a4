"""Options of topics: in whatever letters, and none is passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import BadInputError
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.dataflow.formats import ONLY_SPARKS, check_known_to_us, reading_of, writing_of
from penstock.dataflow.pipeline import Kind, Operator
from penstock.engines.placed.endpoints import topic_share


def source(**options: str) -> Operator:
    return Operator(name="s", kind=Kind.SOURCE, format="log", options=options)


def test_letters_do_not_matter() -> None:
    options = {"KAFKA.Bootstrap.Servers": "h:1", "startingoffsets": "latest", "SUBSCRIBE": "t", "myOwn": "x"}
    spelled = {"kafka.bootstrap.servers": "h:1", "startingOffsets": "latest", "subscribe": "t", "myOwn": "x"}
    assert reading_of(source(**options)).options == spelled
    sink = Operator(name="o", kind=Kind.SINK, format="kafka", options={"Topic": "t", "DELIVERY": "exactly-once"})
    assert writing_of(sink).options == {"topic": "t", "delivery": "exactly-once"}
    # options of other formats are Spark's to read
    files = Operator(name="f", kind=Kind.SOURCE, format="json", options={"PATH": "x"}, schema_="a int")
    assert reading_of(files).options == {"PATH": "x"}


def test_an_option_twice_is_refused() -> None:
    with pytest.raises(BadInputError, match="source 's': option startingOffsets is there twice"):
        reading_of(source(startingOffsets="earliest", startingoffsets="latest"))


@pytest.mark.parametrize("option", ONLY_SPARKS)
def test_what_only_sparks_connector_knows_is_refused(option: str) -> None:
    reading = reading_of(source(**{option.upper(): "1"}))
    with pytest.raises(BadInputError, match=f"^source 's': option {option}: .* say connector: spark"):
        check_known_to_us(reading.options, "source 's'")


def test_a_placed_source_refuses_them_too(tmp_path: Path) -> None:
    EmbeddedLog(tmp_path).create("t", 1)
    reading = reading_of(source(path=str(tmp_path), subscribe="t", startingtimestamp="1"))
    with pytest.raises(BadInputError, match="option startingTimestamp: only Spark's own connector knows it"):
        topic_share("s", reading)
