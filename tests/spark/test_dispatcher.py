"""Bundles, tickets and manifests without Spark: whatever is tried twice or killed, no tuple is lost or doubled."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from effort import tries
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Grouping, Pipeline
from penstock.spark.bundle_work import BundleWorker
from penstock.spark.bundles import Bundle, make_bundles
from penstock.spark.channels import BundleFolder
from penstock.spark.dispatcher import RESERVE_BYTES, Dispatcher


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def odd_only(row: dict[str, Any]) -> dict[str, Any] | None:
    return row if row["value"] % 2 else None


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, row]


def not_a_hundred(row: dict[str, Any]) -> dict[str, Any]:
    if row["value"] % 100 == 99:
        raise ValueError(f"{row['value']} is not liked")
    return row


def random_filter(row: dict[str, Any]) -> dict[str, Any] | None:
    """Code that answers differently when it is run again."""
    return row if random.random() < 0.5 else None  # noqa: S311 - chance, no secret


SLOTS = (Slot("n1", 0), Slot("n1", 1), Slot("n2", 0))

DIAMOND = (
    penstock.pipeline("diamond")
    .source("s")
    .then("a", model="pi")
    .then("b", reads="s", model="pi")
    .then("join", reads=["a", "b"], model="pi")
    .sink("out")
    .build()
)


def diamond_bundles(logic: dict[str, Logic], load: Load, pipeline: Pipeline = DIAMOND) -> list[Bundle]:
    threads = {
        SLOTS[0]: {"s": 1, "a": 1, "join": 1},
        SLOTS[1]: {"a": 2, "b": 1},
        SLOTS[2]: {"join": 3, "b": 1, "out": 1},
    }
    return make_bundles(pipeline, logic, threads, load, lambda _, count: float(count))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def work(folder: Path, bundles: list[Bundle], chance: random.Random, workers: dict[str, BundleWorker]) -> None:
    """One slot after the other in random order works off its first open ticket, some of them twice."""
    for bundle in chance.sample(bundles, len(bundles)):
        own = BundleFolder(folder, bundle.name)
        for number in own.ticket_numbers()[:1]:
            ticket = own.read_ticket(number)
            worker = workers.setdefault(bundle.name, BundleWorker(folder, bundle))
            worker.work_off(ticket, {})
            if chance.random() < 0.3:
                assert not BundleWorker(folder, bundle).work_off(ticket, {})


@given(seed=st.integers(0, 2**32), restarts=st.integers(0, 4))
@tries(0.2)
def test_no_tuple_is_lost_or_doubled_whoever_starts_anew(
    tmp_path_factory: pytest.TempPathFactory, seed: int, restarts: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    chance = random.Random(seed)  # noqa: S311 - chance, no secret
    clock = Clock()
    logic = {"a": Logic(odd_only), "b": Logic(not_a_hundred), "join": Logic(twice)}
    bundles = diamond_bundles(logic, Load.constant(200))
    workers: dict[str, BundleWorker] = {}

    def dispatcher() -> Dispatcher:
        made = Dispatcher(folder, bundles, lambda _: 40, ticket_seconds=1.0, clock=clock)
        made.begin()
        return made

    conductor = dispatcher()
    moments = sorted(chance.choices(range(20), k=restarts))
    for moment in range(20):
        clock.now += 0.25
        conductor.step()
        work(folder, bundles, chance, workers)
        if moment % 3 == 0:
            conductor.tidy()
        for _ in range(moments.count(moment)):
            conductor = dispatcher()
    conductor.hold()
    for _ in range(200):
        conductor.step()
        if conductor.idle:
            break
        work(folder, bundles, chance, workers)
    assert conductor.idle
    audit = conductor.audit()
    assert audit.emitted >= 100
    assert (audit.lost, audit.duplicated) == (0, 0)
    assert audit.filtered == audit.emitted // 2 + audit.emitted % 2
    assert audit.dead == audit.emitted // 100
    conductor.tidy()
    for bundle in bundles:
        assert len(BundleFolder(folder, bundle.name).manifest_numbers()) <= 1
        assert not BundleFolder(folder, bundle.name).ticket_numbers()


def test_code_that_answers_differently_on_a_second_try_loses_nothing(tmp_path: Path) -> None:
    clock = Clock()
    bundles = diamond_bundles(
        {"a": Logic(random_filter), "b": Logic(random_filter), "join": Logic(same)}, Load.constant(100)
    )
    conductor = Dispatcher(tmp_path, bundles, lambda _: 50, ticket_seconds=1.0, clock=clock)
    conductor.begin()
    clock.now += 3
    chance = random.Random(1)  # noqa: S311 - chance, no secret
    workers: dict[str, BundleWorker] = {}
    for _ in range(60):
        conductor.step()
        work(tmp_path, bundles, chance, workers)
    conductor.hold()
    conductor.step()
    audit = conductor.audit()
    assert (audit.emitted, audit.lost, audit.duplicated) == (300, 0, 0)


def test_an_overload_waits_at_the_source(tmp_path: Path) -> None:
    """A receiver that does nothing holds its senders up after a few tickets: what is in the channels is bounded."""
    clock = Clock()
    bundles = diamond_bundles({"a": Logic(same), "b": Logic(same), "join": Logic(same)}, Load.constant(1000))
    conductor = Dispatcher(tmp_path, bundles, lambda _: 40, ticket_seconds=1.0, clock=clock)
    conductor.begin()
    workers: dict[str, BundleWorker] = {}
    chance = random.Random(1)  # noqa: S311 - chance, no secret
    asleep = [bundle for bundle in bundles if "join" not in bundle.operators]
    for _ in range(60):
        clock.now += 1
        conductor.step()
        work(tmp_path, asleep, chance, workers)
    sent = sum(file.stat().st_size for file in tmp_path.rglob("*.arrow"))
    for _ in range(60):
        clock.now += 1
        conductor.step()
        work(tmp_path, asleep, chance, workers)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.arrow")) <= sent
    assert conductor.backlog > 100_000


@pytest.mark.parametrize("grouping", list(Grouping))
def test_every_grouping_delivers_every_tuple_to_somebody(tmp_path: Path, grouping: Grouping) -> None:
    keyed = {"key": "value"} if grouping in {Grouping.FIELDS, Grouping.PARTIAL_KEY} else {}
    pipeline = (
        penstock.pipeline("keys")
        .source("s")
        .then("a", model="pi")
        .then("b", model="pi", grouping=grouping.value, **keyed)
        .sink("out")
        .build()
    )

    def name_thread(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "thread": row["value"] % 7}

    threads = {SLOTS[0]: {"s": 1, "a": 1, "b": 2}, SLOTS[1]: {"b": 1}, SLOTS[2]: {"b": 2, "out": 1}}
    load = Load.constant(100)
    bundles = make_bundles(pipeline, {"a": Logic(name_thread), "b": Logic(same)}, threads, load, lambda _, n: float(n))
    clock = Clock()
    conductor = Dispatcher(tmp_path, bundles, lambda _: 64, ticket_seconds=1.0, clock=clock)
    conductor.begin()
    clock.now += 5
    workers: dict[str, BundleWorker] = {}
    received: dict[str, int] = {}
    for _ in range(60):
        for done in conductor.step():
            if "b" in done.bundle.operators:
                received[done.bundle.name] = received.get(done.bundle.name, 0) + done.manifest.size
        work(tmp_path, bundles, random.Random(1), workers)  # noqa: S311 - chance, no secret
    conductor.hold()
    conductor.step()
    audit = conductor.audit()
    assert (audit.emitted, audit.lost, audit.duplicated, audit.dead) == (500, 0, 0, 0)
    total = sum(received.values())
    match grouping:
        case Grouping.ALL:
            assert total == 5 * 500
        case Grouping.GLOBAL | Grouping.LOCAL_OR_SHUFFLE:
            assert list(received.values()) == [500]
        case Grouping.SHUFFLE | Grouping.SLOT_AWARE:
            # 2, 1 and 2 of 5 threads, to within the leftovers of about a dozen tickets
            assert total == 500
            for count, share in zip(received.values(), (200, 100, 200), strict=True):
                assert abs(count - share) <= 12
        case _:
            assert total == 500
            assert len(received) == 3


def test_a_folder_that_is_full_for_a_while_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, chance = Clock(), random.Random(7)  # noqa: S311 - chance, no secret
    workers: dict[str, BundleWorker] = {}
    bundles = diamond_bundles({name: Logic(same) for name in ("a", "b", "join")}, Load.constant(200))
    conductor = Dispatcher(tmp_path, bundles, lambda _: 40, ticket_seconds=1.0, clock=clock)
    conductor.begin()

    def turn(*, deliver: bool = True) -> None:
        clock.now += 0.25
        conductor.step()
        if deliver:
            work(tmp_path, bundles, chance, workers)
        conductor.tidy()

    for _ in range(5):
        turn()
    assert conductor.trouble is None
    assert (tmp_path / "reserve").stat().st_size == RESERVE_BYTES

    def full(*_: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(BundleFolder, "write_ticket", full)
        patched.setattr(Path, "write_text", full)
        for _ in range(5):
            turn(deliver=False)
            assert "No space left" in str(conductor.trouble)
    for _ in range(5):
        turn()
    assert conductor.trouble is None
    conductor.hold()
    while not conductor.idle:
        turn()
    audit = conductor.audit()
    assert audit.emitted >= 400
    assert (audit.lost, audit.duplicated) == (0, 0)


def test_a_folder_full_of_what_was_read_gets_room_from_its_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor = Dispatcher(tmp_path, diamond_bundles({}, Load.constant(1)), lambda _: 40, ticket_seconds=1.0)
    conductor.tidy()
    written = Path.write_text

    def full_but_for_the_reserve(path: Path, text: str, **more: Any) -> int:
        if (tmp_path / "reserve").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(path, text, **more)

    monkeypatch.setattr(Path, "write_text", full_but_for_the_reserve)
    conductor.tidy()
    assert conductor.trouble is None
