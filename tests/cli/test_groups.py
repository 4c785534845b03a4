"""The tree of commands: about a dozen words, former words that still work, commands of other packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from outcome import Penstock

from penstock.cli import vocabulary
from penstock.cli.main import app
from penstock.cli.vocabulary import FORMER_WORDS

FORMER = json.loads((Path(__file__).parents[1] / "formats_0_1" / "command_line.json").read_text("utf-8"))
"""Every command of version 0.1: its options, and whether each takes a value."""
WORDS = {
    "": "init doctor profile plan simulate run advise plans models runs pipelines controller cluster dev",
    "models": "show plot import",
    "plans": "capacity diff segments rewrite deploy",
    "runs": "list stop pause resume rescale kill logs",
    "pipelines": "submit list show set pause resume kill logs trigger",
    "controller": "up down serve dashboard policy nodes decisions events manifests repair",
    "cluster": "up down status master worker place share",
    "dev": "broker produce experiment enter link",
}
"""By group, the words that help lists. `penstock --help` lists about a dozen."""


@pytest.fixture(autouse=True)
def forget_notes() -> None:
    vocabulary._report_once.cache_clear()


@pytest.mark.parametrize("former", sorted(FORMER_WORDS))
def test_a_former_word_runs_the_new_command_and_prints_it_once(penstock: Penstock, former: str) -> None:
    words = FORMER_WORDS[former]
    outcome = penstock(*former.split(), "--help")
    written = " ".join(words)
    assert (outcome.code, outcome.err) == (
        0,
        f"note: 'penstock {former}' is now 'penstock {vocabulary.REPLACED_BY.get(written, written)}'\n",
    )
    # the same help but for the words of the usage line
    assert outcome.out.partition("]")[2] == penstock(*words, "--help").out.partition("]")[2]
    assert penstock(*former.split(), "--help").err == ""


def listed(penstock: Penstock, *group: str) -> set[str]:
    """Return the commands that the help of a group lists."""
    lines = penstock(*group, "--help").out.partition("Commands:")[2].splitlines()
    return {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}


@pytest.mark.parametrize("group", WORDS)
def test_help_lists_the_present_words_only(penstock: Penstock, group: str) -> None:
    assert listed(penstock, *group.split()) == set(WORDS[group].split())


@pytest.mark.parametrize("group", [group for group in WORDS if group not in {"", "models", "runs"}])
def test_a_group_without_a_command_prints_its_help(penstock: Penstock, group: str) -> None:
    assert penstock(group) == penstock(group, "--help")


@pytest.mark.parametrize("former", sorted(FORMER))
def test_every_command_of_0_1_takes_the_options_it_had(penstock: Penstock, former: str) -> None:
    for option, takes_value in FORMER[former].items():
        # options are looked up before help is printed; their values are read after it
        words = [*former.split(), option, *(["1"] if takes_value else []), "--help"]
        assert (penstock(*words).code, words) == (0, words)


def test_runs_without_a_command_lists_them_as_before(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    assert penstock("runs").out == penstock("runs", "list").out != ""
    assert penstock("runs", "--json").document == penstock("runs", "list", "--json").document == []


@pytest.mark.parametrize(
    "words", [("stop", "x"), ("pause", "x"), ("resume", "x"), ("kill", "x"), ("rescale", "x", "--slots", "2")]
)
def test_a_word_about_a_run_that_is_not_there_names_it(
    penstock: Penstock, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    outcome = penstock("runs", *words)
    assert outcome.code == 2
    assert outcome.err.startswith("error: no run 'x': expected its folder")


def test_the_log_of_a_run_is_printed(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert penstock("runs", "logs", tmp_path).err == f"error: {tmp_path}: the run has no log\n"
    (tmp_path / "log").write_text("first\nsecond\nthird\n")
    assert penstock("runs", "logs", tmp_path).out == "first\nsecond\nthird\n"
    assert penstock("runs", "logs", tmp_path, "--lines", 1).out == "third\n"


def test_help_loads_none_of_the_libraries_that_work_needs() -> None:
    code = "import sys; from penstock.cli.main import run; run(['--help']); print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in answer.stdout.split()}
    assert "typer" in loaded
    assert loaded.isdisjoint({"numpy", "pandas", "pyarrow", "pydantic", "pyspark", "rich", "sqlalchemy", "yaml"})


def test_every_command_of_a_group_is_not_itself_a_former_word() -> None:
    root = typer.main.get_command(app)
    for former, words in FORMER_WORDS.items():
        command = root
        for word in words:
            command = command.find(word)  # type: ignore[attr-defined] # every group is a WordGroup
        assert command is not None, former


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sbmit",), "error: unknown command 'sbmit'; did you mean 'penstock pipelines submit'?\n"),
        (("pipelines", "kil"), "error: unknown command 'pipelines kil'; did you mean 'penstock pipelines kill'?\n"),
        (("dev", "experimnt"), "error: unknown command 'dev experimnt'; did you mean 'penstock dev experiment'?\n"),
    ],
)
def test_a_misspelt_word_names_the_nearest_command(penstock: Penstock, words: tuple[str, ...], message: str) -> None:
    outcome = penstock(*words)
    assert (outcome.code, outcome.err) == (2, message)


def test_set_without_anything_to_change_says_what_can_be(penstock: Penstock) -> None:
    outcome = penstock("pipelines", "set", "orders")
    assert outcome.code == 2
    assert "nothing to change; give --rate" in outcome.err
