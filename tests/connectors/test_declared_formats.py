"""The contract of a declared format: every format keeps it, as far as that can be seen without its server."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from importlib.util import find_spec

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.connectors import file_source, staged_sinks
from penstock.connectors.topic_address import is_address, parse_topic
from penstock.dataflow.formats import (
    Format,
    Medium,
    PlacedCommit,
    SinkCommit,
    declared_formats,
    find_format,
    format_of_ending,
    reading_of,
    writing_of,
)
from penstock.dataflow.pipeline import Kind, Operator
from penstock.engines.placed.endpoints import check_delivery, sinks_of
from penstock.spark.internals.error_messages import in_one_line

FORMATS = tuple(declared_formats())
every_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def options_of(form: Format) -> dict[str, str]:
    """Enough options for a source or sink of a format."""
    options = {form.address_option: "somewhere"}
    return {**options, "topic": "t", "subscribe": "t"} if form.is_log else options


def source(form: Format) -> Operator:
    return Operator(name="in", kind=Kind.SOURCE, format=form.name, options=options_of(form))


def sink(form: Format) -> Operator:
    return Operator(name="out", kind=Kind.SINK, format=form.name, options=options_of(form))


def test_names_and_endings_mean_one_format() -> None:
    names = Counter(name for form in FORMATS for name in (form.name, *form.former_names))
    endings = Counter(ending for form in FORMATS for ending in form.endings)
    assert [name for name, count in (names + endings).items() if count > 1] == []


@every_format
def test_it_is_found_by_each_of_its_names(form: Format) -> None:
    assert form.name == form.name.lower()
    assert {find_format(name).name for name in (form.name, form.name.upper(), *form.former_names)} == {form.name}
    assert {format_of_ending(ending.upper()) for ending in form.endings} <= {form.name}


@every_format
def test_it_can_be_read_or_written_as_it_says(form: Format) -> None:
    assert form.can_read or form.can_write
    for end, allowed, other in ((source, form.can_read, "written"), (sink, form.can_write, "read")):
        if allowed:
            operator = end(form)
            held = reading_of(operator) if end is source else writing_of(operator)
            assert held.format == form.name
            assert held.options.items() >= options_of(form).items()
        else:
            with pytest.raises(ValueError, match=f"format '{form.name}' can only be {other}"):
                end(form)


@every_format
def test_its_declaration_is_complete(form: Format) -> None:
    assert (form.commit is SinkCommit.VERSION) == (form.version_options is not None)
    assert (form.commit is SinkCommit.WRITER) == bool(form.writer)
    assert (form.commit is SinkCommit.TRANSACTION) <= form.is_log
    assert (form.medium is Medium.LOG) == bool(form.log)
    assert form.is_files or not (form.endings or form.numbered_rows or form.replayable)
    assert (form.placed_commit is PlacedCommit.SLOTS) <= (form.commit is SinkCommit.RENAME)
    assert (form.placed_commit is PlacedCommit.LOG) == (form.commit is SinkCommit.TRANSACTION)
    assert (form.placed_commit is PlacedCommit.NOTHING) == (form.commit is SinkCommit.NOTHING)
    for options in (form.secret_options, form.plain_options):
        assert {option.lower() for option in options} == options


def test_rows_by_number_and_files_of_slots_have_code() -> None:
    assert {form.name for form in FORMATS if form.numbered_rows} == {str(name) for name in file_source._CURSORS}
    by_slots = {form.name for form in FORMATS if form.placed_commit is PlacedCommit.SLOTS}
    assert by_slots == set(staged_sinks._FILL) - {"topic"}


@every_format
def test_a_placed_sink_commits_as_it_says(form: Format, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not form.can_write:
        assert form.placed_commit is PlacedCommit.SPARK  # nothing is said of what cannot be
        return
    pipeline = penstock.pipeline("p").source("src").then("work").sink(
        "out", format=form.name, options=options_of(form)
    ).build()  # fmt: skip
    files, shown = sinks_of(pipeline, None, at_least_once=True)
    assert ("out" in files) == (form.placed_commit not in {PlacedCommit.NOTHING, PlacedCommit.CONSOLE})
    assert ("out" in shown) == (form.placed_commit is PlacedCommit.CONSOLE)
    if form.exactly_once:
        check_delivery(sink(form), at_least_once=False)
    else:
        with pytest.raises(BadInputError, match=r"sink 'out': .* cannot commit by epoch"):
            check_delivery(sink(form), at_least_once=False)


@pytest.mark.parametrize("form", [form for form in FORMATS if form.is_log], ids=lambda form: form.name)
def test_a_log_has_addresses_and_opens(form: Format) -> None:
    place = "/tmp/somewhere" if form.is_path else "host:9092"  # noqa: S108 - a name, nothing is there
    address, topic = parse_topic(f"{form.name}:{place}/orders")
    assert is_address(f"{form.name}:{place}")
    assert (address.format, dict(address.options), topic) == (form.name, {form.address_option: place}, "orders")
    assert str(address) == f"{form.name}:{place}"
    if form.python_package is None or find_spec(form.python_package[0]) is not None:
        module, _, function = form.log.partition(":")
        assert callable(getattr(import_module(module), function))


def test_a_log_without_its_package_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.topic_address.find_spec", lambda name: None)
    address, _ = parse_topic("kafka:host:9092/orders")
    with pytest.raises(BadInputError, match=r"format kafka needs confluent_kafka: pip install 'penstock\[kafka\]'"):
        address.open()


@pytest.mark.parametrize("form", [form for form in FORMATS if form.spark_package], ids=lambda form: form.name)
def test_a_missing_package_of_spark_is_named(form: Format) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(BadInputError, match=f"--packages {form.spark_package}:VERSION"), in_one_line("x", form.name):
        raise AnalysisException(f"Failed to find the data source: {form.name}")


def test_a_format_that_nobody_declares_is_the_least_that_spark_promises() -> None:
    """Class names keep their capitals; nothing is sampled, and a sink delivers at least once."""
    unknown = find_format("com.example.Queue")
    assert unknown == Format(name="com.example.Queue")
    assert (unknown.rereadable, unknown.exactly_once, unknown.is_files) == (False, False, False)


def test_a_declared_secret_must_not_stand_in_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    safe = Format(name="safe", secret_options=frozenset({"combination"}))
    monkeypatch.setattr("penstock.dataflow.secrets.find_format", lambda name: safe)
    with pytest.raises(ValueError, match=r"option 'combination' is a secret: say combination.env: VARIABLE"):
        Operator(name="out", kind=Kind.SINK, format="safe", options={"combination": "36-24"})
    assert Operator(name="out", kind=Kind.SINK, format="safe", options={"combination.file": "/x"}).options
