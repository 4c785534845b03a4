"""What names hold never reaches a terminal as an order; what is done is logged where somebody asks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcome import Penstock

from penstock.base.errors import printable
from penstock.cli import output

NASTY = "a\x7f\x9b31m\u202eb\u2066c\u200f"
"""DEL, an escape sequence's beginning in one character, and marks that turn the direction of writing."""
ESCAPED = "a\\x7f\\x9b31m\\u202eb\\u2066c\\u200f"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain", "plain"),
        ("Öl 油 \U0001f6e2", "Öl 油 \U0001f6e2"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines", "two\\nlines"),
        (NASTY, ESCAPED),
        ("\ud800", "\\ud800"),
        ("\u2028", "\\u2028"),
    ],
)
def test_characters_that_do_something_are_escaped(text: str, printed: str) -> None:
    assert printable(text) == printed


@given(st.text())
def test_what_is_printable_shows(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text, keep="\n").count("\n") == text.count("\n")


def test_tables_and_lines_pass_through_it(capsys: pytest.CaptureFixture[str]) -> None:
    screen = output.console()
    screen.print(f"line {NASTY}")
    screen.print(output.table(f"title {NASTY}", (f"column {NASTY}",), ((f"cell {NASTY}",),)))
    output.say(f"said {NASTY}")
    output.complain(f"complained {NASTY}")
    captured = capsys.readouterr()
    for word in ("line", "title", "column", "cell", "said"):
        assert f"{word} {ESCAPED}" in captured.out
    assert captured.err == f"complained {ESCAPED}\n"
    assert captured.out.replace("\n", "").isprintable()


def pipeline(folder: Path) -> Path:
    file = folder / f"{NASTY}.json"
    operators = {"s": {"kind": "source"}, NASTY: {"model": "pi"}, "o": {"kind": "sink"}}
    streams = [{"from": "s", "to": NASTY}, {"from": NASTY, "to": "o"}]
    file.write_text(json.dumps({"name": NASTY, "operators": operators, "streams": streams}))
    return file


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "FILE", "--rate", 10),
        ("plan", "FILE", "--rate", 10, "--explain"),
        ("plan", "FILE", "--rate", 10, "--compare"),
        ("segments", "FILE"),
        ("plan", "FILE", "--rate", 1e9),
        ("plan", "FILEx", "--rate", 10),
    ],
)
def test_names_of_a_pipeline_are_escaped_everywhere(
    penstock: Penstock, tmp_path: Path, words: tuple[object, ...]
) -> None:
    outcome = penstock(*(str(word).replace("FILE", str(pipeline(tmp_path))) for word in words))
    shown = outcome.out + outcome.err
    assert shown.replace("\n", "").isprintable()
    assert ESCAPED in shown


def test_json_stays_json(penstock: Penstock, tmp_path: Path) -> None:
    outcome = penstock("plan", pipeline(tmp_path), "--rate", 10, "--json")
    assert outcome.document["pipeline"] == NASTY
    assert outcome.out.replace("\n", "").isprintable()


def test_a_command_is_quiet_unless_asked(penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_LOG", raising=False)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    state = {
        "id": "x",
        "folder": str(tmp_path),
        "nodes": [],
        "web_url": "http://127.0.0.1:1",
        "master_url": "spark://h:1",
    }
    (tmp_path / "state.json").write_text(json.dumps(state))
    pytest.importorskip("psutil")
    assert penstock("cluster", "status").err == "error: the Master at spark://h:1 does not answer\n"
    monkeypatch.setenv("PENSTOCK_LOG", "debug")
    assert (
        "DEBUG penstock.spark.clusters.standalone.master_page: nobody answers at" in penstock("cluster", "status").err
    )
    monkeypatch.setenv("PENSTOCK_LOG", "loud")
    assert penstock("cluster", "status").err == (
        "error: PENSTOCK_LOG: unknown level 'loud'; known: debug, info, warning, error\n"
    )
    monkeypatch.delenv("PENSTOCK_LOG")
    assert (
        penstock("--verbose", "cluster", "down").err.count("INFO penstock.spark.clusters.local.lifecycle: ending") == 1
    )
    assert penstock("cluster", "down").err == ""
