from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from log_contract import LogContract, numbered, values_of
from penstock.base.errors import BadInputError
from penstock.connectors.embedded_log import STORED, EmbeddedLog, Partition
from penstock.connectors.log_contract import DamagedLogError, Span, TopicLog
from penstock.connectors.topic_address import is_address, parse_log, parse_topic


class TestEmbeddedLog(LogContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], TopicLog]:
        return lambda: EmbeddedLog(tmp_path / "log", segment_bytes=2_000)

    @pytest.fixture
    def expire(self, make: Callable[[], TopicLog]) -> Callable[[TopicLog, str], int]:
        def age(log: TopicLog, topic: str) -> int:
            log.create(topic, 1, retention_seconds=60)
            producer = log.producer()
            for _ in range(3):  # stamped long ago, a file each
                producer.send(topic, [b"x" * 100] * 100, times_ms=[1000] * 100)
                producer.flush()
            producer.send(topic, [b"new"])
            producer.close()
            return log.spans(topic)[0].first

        return age


def test_what_was_half_written_was_never_appended(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path)
    log.create("t", 1)
    producer = log.producer()
    producer.send("t", numbered(0, 10))
    producer.flush()
    producer.send("t", numbered(10, 20))
    producer.close()
    file = next((tmp_path / "topics" / "t" / "00000").glob("*.segment"))
    os.truncate(file, file.stat().st_size - 3)
    assert values_of(EmbeddedLog(tmp_path), "t") == numbered(0, 10)
    again = EmbeddedLog(tmp_path)
    producer = again.producer()
    producer.send("t", numbered(30, 35))
    producer.close()
    assert values_of(EmbeddedLog(tmp_path), "t") == [*numbered(0, 10), *numbered(30, 35)]


def segments_of_ten(folder: Path, segment_bytes: int) -> list[Path]:
    """Three frames of ten messages each; the files they are in."""
    log = EmbeddedLog(folder, segment_bytes=segment_bytes)
    log.create("t", 1)
    producer = log.producer()
    for first in (0, 10, 20):
        producer.send("t", numbered(100 + first, 110 + first))
        producer.flush()
    return sorted((folder / "topics" / "t" / "00000").glob("*.segment"))


@pytest.mark.parametrize("spoiled", ["head", "body", "cut"])
@pytest.mark.parametrize(("segment_bytes", "files"), [(1, 3), (10**6, 1)])
def test_damage_before_what_is_there_is_said_with_its_file_and_offset(
    tmp_path: Path, segment_bytes: int, files: int, spoiled: str
) -> None:
    paths = segments_of_ten(tmp_path, segment_bytes)
    assert len(paths) == files
    file = paths[1] if files == 3 else paths[0]
    size = file.stat().st_size
    middle = 0 if files == 3 else size // 3  # frames are equally large
    known = EmbeddedLog(tmp_path)
    assert len(values_of(known, "t")) == 30
    data = bytearray(file.read_bytes())
    if spoiled == "cut":
        del data[middle + 40 : middle + 60]
    else:
        data[middle + (1 if spoiled == "head" else 100)] ^= 1
    file.write_bytes(data)
    complaint = (
        rf"{file.name}: damaged at byte {middle}: topic 't', partition 0 has no message 10 there, and messages from 20"
    )
    with pytest.raises(DamagedLogError, match=complaint):
        EmbeddedLog(tmp_path).spans("t")
    if spoiled == "body":  # whoever looked before the damage sees it when reading
        with pytest.raises(DamagedLogError, match="has no message 10 there"):
            list(known.read("t", 0, 0, 30))
    # and nobody appends behind it
    with pytest.raises(DamagedLogError):
        EmbeddedLog(tmp_path).append({("t", 0): pa.RecordBatch.from_pylist([{"value": b"x", "time_ms": 1}], STORED)})


def test_a_file_that_is_missing_in_the_middle_is_damage(tmp_path: Path) -> None:
    segments_of_ten(tmp_path, 1)[1].unlink()
    with pytest.raises(DamagedLogError, match="no message 10 there, and messages from 20 on follow"):
        EmbeddedLog(tmp_path).spans("t")


def test_a_flipped_bit_in_the_last_frame_is_as_if_it_was_never_finished(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path)
    log.create("t", 1)
    producer = log.producer()
    producer.send("t", numbered(0, 10))
    producer.close()
    file = next((tmp_path / "topics" / "t" / "00000").glob("*.segment"))
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    assert values_of(EmbeddedLog(tmp_path), "t") == []


@pytest.mark.parametrize("dies_at", ["append 1", "append 2", "state"])
def test_a_transaction_that_was_decided_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    """The process dies after its journal was written: in the middle of writing, or before the journal is gone."""
    log = EmbeddedLog(tmp_path)
    log.create("t", 2)
    producer = log.transactional("p", "t")
    producer.send("t", numbered(0, 20))
    appended = 0
    append = Partition.append

    def dying_append(self: Partition, batch: object, oldest_ms: int | None) -> None:
        nonlocal appended
        appended += 1
        append(self, batch, oldest_ms)
        if dies_at == f"append {appended}":
            raise KeyboardInterrupt

    def dying_write(file: Path, text: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if dies_at == "state":
            patched.setattr(EmbeddedLog, "_write", staticmethod(dying_write))
        else:
            patched.setattr(Partition, "append", dying_append)
        with pytest.raises(KeyboardInterrupt):
            producer.commit(1)
    other = EmbeddedLog(tmp_path)
    assert Counter(values_of(other, "t")) == Counter(numbered(0, 20))
    assert other.transactional("p", "t").last == 1


def _send_for_ever(folder: str, name: str) -> None:
    log = EmbeddedLog(folder)
    producer = log.transactional(name, "t")
    number = producer.last + 1
    while True:
        producer.send("t", [f"{name}:{number}:{part}".encode() for part in range(20)])
        producer.commit(number)
        number += 1


def test_processes_that_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    """Two producers at once, each killed and started again: every committed transaction is there once and whole."""
    EmbeddedLog(tmp_path).create("t", 3)
    context = multiprocessing.get_context("fork")
    for round_number in range(5):
        processes = [context.Process(target=_send_for_ever, args=(str(tmp_path), name)) for name in ("a", "b")]
        for process in processes:
            process.start()
        for process in processes:
            process.join(0.15 + 0.03 * round_number)
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
    log = EmbeddedLog(tmp_path)
    counts = Counter(values_of(log, "t"))
    for name in ("a", "b"):
        last = log.transactional(name, "t").last
        assert last > 5
        expected = [f"{name}:{number}:{part}".encode() for number in range(last + 1) for part in range(20)]
        mine = {value: count for value, count in counts.items() if value.startswith(f"{name}:".encode())}
        assert mine == dict.fromkeys(expected, 1)


def test_folders_and_files_are_the_owners(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    log.create("t", 1)
    producer = log.transactional("p", "t")
    producer.send("t", [b"x"])
    producer.commit(0)
    for path in (tmp_path / "log").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_addresses() -> None:
    log, topic = parse_topic("kafka:127.0.0.1:9092/orders")
    assert (log.format, log.options, topic) == ("kafka", {"kafka.bootstrap.servers": "127.0.0.1:9092"}, "orders")
    assert parse_log("log:/somewhere/x").options == {"path": "/somewhere/x"}
    assert parse_topic("log:/somewhere/x/orders")[0].options == {"path": "/somewhere/x"}
    assert is_address("log:x")
    assert not is_address("out/letters")
    for wrong in ("file:x/y", "kafka:", "log:/orders!", "kafka:9092"):
        with pytest.raises(BadInputError):
            parse_topic(wrong)


def test_a_journal_that_a_power_cut_brought_back_cuts_off_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was finished and deleted, others appended behind it, and then its deletion was lost."""
    log = EmbeddedLog(tmp_path)
    log.create("t", 2)
    journals: list[bytes] = []
    finish = EmbeddedLog._finish

    def kept(self: EmbeddedLog) -> None:
        journals.append((tmp_path / "journal").read_bytes())
        finish(self)

    monkeypatch.setattr(EmbeddedLog, "_finish", kept)
    producer = log.transactional("p", "t")
    producer.send("t", numbered(0, 20))
    producer.commit(1)
    plain = log.producer()
    plain.send("t", numbered(20, 30))
    plain.close()
    (tmp_path / "journal").write_bytes(journals[0])
    taken_over = EmbeddedLog(tmp_path).transactional("p", "t")
    assert Counter(values_of(EmbeddedLog(tmp_path), "t")) == Counter(numbered(0, 30))
    assert taken_over.last == 1
    assert not (tmp_path / "journal").exists()


def test_only_whoever_holds_the_lock_looks_at_a_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that look at once would both find what is new, and read it twice from then on."""
    log = EmbeddedLog(tmp_path, segment_bytes=200)
    log.create("t", 1)
    producer = log.producer()
    for first in (0, 10, 20):
        producer.send("t", numbered(first, first + 10))
        producer.flush()
    held: list[bool] = []
    look = Partition.look

    def watched(self: Partition) -> Span:
        held.append(log._depth > 0)
        return look(self)

    monkeypatch.setattr(Partition, "look", watched)
    batches = log.read("t", 0, 5, 30)
    rows = next(batches)["value"].to_pylist()
    producer.send("t", numbered(30, 40))  # what comes meanwhile changes nothing of what is read
    producer.flush()
    assert rows + [value for batch in batches for value in batch["value"].to_pylist()] == numbered(5, 30)
    assert held
    assert all(held)
