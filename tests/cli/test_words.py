"""Errors of Python in the words of the command line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from outcome import Penstock

import penstock as package
from penstock.cli.main import OPTION_OF, in_options
from penstock.runs.config import Appears, options

COMMANDS = Path(package.__file__).parent / "cli" / "commands"


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("rate=: expected tuples/s", "--rate: expected tuples/s"),
        ("find_max= looks for it; leave out rate=", "--find-max looks for it; leave out --rate"),
        ("low=, outages=: not for mode='fused', where", "--low, --fail: not for --mode fused, where"),
        ("placer 'x:rate=5,low=y'", "placer 'x:rate=5,low=y'"),
        ("the overrate= of nobody", "the overrate= of nobody"),
    ],
)
def test_arguments_become_options(python: str, shell: str) -> None:
    assert in_options(python) == shell


def test_every_option_named_exists() -> None:
    texts = {
        node.value
        for file in [*COMMANDS.glob("*.py"), COMMANDS.parent / "vocabulary.py"]
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(OPTION_OF.values()) <= texts | {one.flag for one in options(Appears.COMMAND)}


def test_the_same_error_in_both_words(penstock: Penstock) -> None:
    with pytest.raises(package.BadInputError, match=r"^low= and high= mean something only with find_max=$"):
        package.run("linear", 10, low=5)
    outcome = penstock("run", "linear", "--rate", 10, "--low", 5)
    assert (outcome.code, outcome.err) == (2, "error: --low and --high mean something only with --find-max\n")
