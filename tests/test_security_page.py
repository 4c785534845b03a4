"""Every promise on the page about security names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)*)`", (ROOT / "docs" / "security.md").read_text("utf-8"))


def names_below(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    return {node.name: node.body for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize(("path", "names"), sorted(set(NAMED)))
def test_a_promise_is_held_by_a_test(path: str, names: str) -> None:
    body = ast.parse((ROOT / path).read_text("utf-8")).body
    for name in filter(None, names.split("::")):
        assert name in names_below(body), f"{path} has no {name}"
        body = names_below(body)[name]


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 30
