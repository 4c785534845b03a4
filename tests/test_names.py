"""A name stands for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent
VAGUE = {"found", "one", "told", "heard", "said"}
"""As variables, arguments and fields these say nothing of what they hold."""


def classes_by_name(modules: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Where each public class is defined, from pairs of a module's name and its text; one inside a function or another
    class is local and does not count."""
    places = defaultdict(list)
    for module, text in modules:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    return dict(places)


def test_a_class_name_stands_for_one_class() -> None:
    modules = [(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))]
    assert {name: places for name, places in classes_by_name(modules).items() if len(places) > 1} == {}


def test_two_classes_of_one_name_are_seen() -> None:
    text = "class Lease: ...\nclass _Own: ...\nclass Outer:\n    class Inner: ..."
    assert classes_by_name([("a.py", text), ("b.py", text)]) == {"Lease": ["a.py", "b.py"], "Outer": ["a.py", "b.py"]}


def vague_names(text: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                names += [name] if name in VAGUE else []
    return names


def test_variables_say_what_they_hold() -> None:
    vague = {str(path.relative_to(ROOT)): vague_names(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}
    assert {path: names for path, names in vague.items() if names} == {}


def test_a_vague_variable_is_seen() -> None:
    text = "def f(told):\n    found = [one for one in told]\n    self.said = found"
    assert sorted(vague_names(text)) == ["found", "one", "said", "told"]
