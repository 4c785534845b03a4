"""The tree of commands: about a dozen words, former words that still work, commands of other packages."""

from __future__ import annotations

import pytest
import typer
from outcome import Penstock

from penstock.cli import groups
from penstock.cli.groups import FORMER_WORDS
from penstock.cli.main import app


@pytest.fixture(autouse=True)
def forget_notes() -> None:
    groups._report_once.cache_clear()


@pytest.mark.parametrize("former", sorted(FORMER_WORDS))
def test_a_former_word_runs_the_new_command_and_prints_it_once(penstock: Penstock, former: str) -> None:
    words = FORMER_WORDS[former]
    outcome = penstock(*former.split(), "--help")
    written = " ".join(words)
    assert (outcome.code, outcome.err) == (
        0,
        f"note: 'penstock {former}' is now 'penstock {groups.REPLACED_BY.get(written, written)}'\n",
    )
    # the same help but for the words of the usage line
    assert outcome.out.partition("]")[2] == penstock(*words, "--help").out.partition("]")[2]
    assert penstock(*former.split(), "--help").err == ""


def test_no_former_word_is_listed(penstock: Penstock) -> None:
    listed = {line.split()[0] for line in penstock("--help").out.partition("Commands:")[2].splitlines() if line}
    assert not listed & set(FORMER_WORDS)


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
