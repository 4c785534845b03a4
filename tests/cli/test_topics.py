"""`produce` and `broker` from the shell; nothing here starts a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from outcome import Penstock

from penstock.connectors.log.embedded import EmbeddedLog


def test_produce_by_options_and_by_a_file(penstock: Penstock, tmp_path: Path) -> None:
    there = f"log:{tmp_path / 'log'}/t"
    done = penstock(
        "produce", "--to", there, "--data", "readings", "--rate", 1000, "--messages", 50, "--partitions", 2, "--json"
    )
    said = json.loads(done.out)
    assert said["messages"] == 50
    assert done.code == (0 if said["kept"] else 1)  # a machine with much else to do may be late
    spec = tmp_path / "more.yaml"
    spec.write_text(f"to: {there}\ndata: readings\nrate: 1000\nmessages: 10\n")
    # what is said in the shell counts
    assert penstock("produce", spec, "--messages", 20).out.startswith("20 messages in ")
    assert sum(span.messages for span in EmbeddedLog(tmp_path / "log").spans("t").values()) == 70


def test_a_rate_that_is_not_kept_is_exit_code_1(penstock: Penstock, tmp_path: Path) -> None:
    there = f"log:{tmp_path / 'log'}/t"
    done = penstock("produce", "--to", there, "--data", "tweets", "--rate", 1e7, "--seconds", 0.2, "--partitions", 1)
    assert done.code == 1
    assert "was not kept" in done.out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("produce",), "expected a file, or --to and --rate"),
        (("produce", "--to", "kafka:127.0.0.1:1/t", "--data", "tweets", "--rate", "1"), "Kafka at 127.0.0.1:1"),
        (("produce", "--to", "log:l/t", "--data", "tweets", "--rate", "1"), "no topic 't'"),
        (("produce", "none.yaml"), "none.yaml"),
    ],
)
def test_what_is_wrong_is_one_line(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("penstock.connectors.kafka.client.ANSWER_SECONDS", 1.0)
    done = penstock(*words)
    assert done.code in {1, 2}
    assert complaint in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_no_broker(penstock: Penstock, tmp_path: Path) -> None:
    assert penstock("broker", "status", "--folder", tmp_path).code == 1
    assert penstock("broker", "down", "--folder", tmp_path).out == "no broker was running\n"
