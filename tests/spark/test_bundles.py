"""Cutting pipelines into segments and bundles, dealing tuples, and what becomes of code and disks that fail."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Grouping
from penstock.spark import bundle_work
from penstock.spark.bundle_queries import forget_unplanned
from penstock.spark.bundle_work import BundleWorker
from penstock.spark.bundles import make_bundles, segments_between_aggregates
from penstock.spark.channels import BundleFolder, Emission, Ticket
from penstock.spark.routing import Route, Target, deal
from penstock.spark.segmented import segments_of
from penstock.spark.tuple_files import read_tuples
from penstock.spark.tuples import Tuple

COUNT = {"key": "word", "outputs": {"n": "count"}, "fields": "word string"}
HERE = Slot("local", 0)


def test_segments_end_where_aggregations_are() -> None:
    pipeline = (
        penstock.pipeline("p")
        .source("s")
        .then("split")
        .then("count", aggregate=COUNT)
        .then("rank")
        .then("raw", reads="split")
        .sink("out", reads=["rank", "raw"])
        .build()
    )
    cut = segments_between_aggregates(pipeline)
    assert cut == [("s", "split", "raw"), ("count",), ("rank", "out")]
    assert segments_of(pipeline, 2)[:2] == [("s",), ("split", "raw")]


def test_an_aggregation_keeps_its_name_over_generations() -> None:
    pipeline = penstock.pipeline("p").source("s").then("count", aggregate=COUNT).sink("out").build()
    threads = {HERE: {"s": 1, "count": 1, "out": 1}}

    def names(generation: int) -> list[str]:
        made = make_bundles(pipeline, {}, threads, Load.constant(1), lambda _, n: float(n), generation)
        return [bundle.name for bundle in made]

    assert names(0)[1] == names(3)[1]
    assert names(0)[0] != names(3)[0]


def test_shares_are_exact_in_the_long_run() -> None:
    targets = (Target("a", 1, 1.0, local=False), Target("b", 2, 9.0, local=False))
    items = [Tuple(number, 0.0, 0, {}) for number in range(10)]

    def total(grouping: Grouping) -> int:
        route = Route("x", 0, grouping, None, targets)
        return sum(len(deal(items, route, ticket).get("b", [])) for ticket in range(300))

    assert total(Grouping.SHUFFLE) == pytest.approx(3000 * 2 / 3, abs=20)
    assert total(Grouping.SLOT_AWARE) == pytest.approx(3000 * 9 / 10, abs=20)


def chain_worker(folder: Path, code: Any) -> tuple[BundleWorker, BundleFolder]:
    pipeline = penstock.pipeline("p").source("s").then("a").sink("out").build()
    threads = {HERE: {"s": 1, "a": 1, "out": 1}}
    segments = [("s", "a"), ("out",)]
    first, second = make_bundles(
        pipeline, {"a": Logic(code)}, threads, Load.constant(10), lambda _, n: float(n), segments=segments
    )
    for bundle in (first, second):
        BundleFolder(folder, bundle.name).create()
    return BundleWorker(folder, first), BundleFolder(folder, first.name)


TICKET = Ticket(0, emission=Emission(0, 4, 1000.0))


def test_a_full_disk_leaves_nothing_behind_and_the_ticket_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, own = chain_worker(tmp_path, lambda row: row)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(bundle_work, "write_tuples", full)
        with pytest.raises(OSError, match="No space left"):
            worker.work_off(TICKET, {})
    assert not own.is_published(0)
    assert not list(own.data.glob("*/*"))
    assert worker.work_off(TICKET, {})
    manifest = own.read_manifest(0)
    assert manifest is not None
    assert [sent.rows for sent in manifest.sent.values()] == [4]


def test_a_payload_that_cannot_travel_becomes_a_dead_letter(tmp_path: Path) -> None:
    worker, own = chain_worker(tmp_path, lambda row: {"it": object()} if row["value"] == 2 else row)
    assert worker.work_off(TICKET, {})
    manifest = own.read_manifest(0)
    assert manifest is not None
    assert [sent.rows for sent in manifest.sent.values()] == [3]
    assert manifest.counts["a"]["dead"] == 1


def test_bytes_travel(tmp_path: Path) -> None:
    worker, own = chain_worker(tmp_path, lambda row: {"raw": b"\x00\xff", **row})
    assert worker.work_off(TICKET, {})
    manifest = own.read_manifest(0)
    assert manifest is not None
    (sent,) = manifest.sent.values()
    items = read_tuples(tmp_path / sent.file, 1, 3)
    assert [item.payload for item in items] == [{"raw": b"\x00\xff", "value": 1}, {"raw": b"\x00\xff", "value": 2}]


def test_notes_of_files_whose_batch_was_never_planned_are_forgotten(tmp_path: Path) -> None:
    offsets, sources = tmp_path / "offsets", tmp_path / "sources" / "0"
    offsets.mkdir()
    sources.mkdir(parents=True)
    for number in range(7):
        (offsets / str(number)).touch()
    for name in ("5", "6", "7", ".7.crc", "8.compact"):
        (sources / name).touch()
    forget_unplanned(tmp_path)
    assert sorted(entry.name for entry in sources.iterdir()) == ["5", "6"]
    forget_unplanned(tmp_path / "there is nothing here yet")
