"""The lab uses Penstock as any other package would: public names, documented modules, and a short list of seams."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock_lab

ROOT = Path(penstock_lab.__file__).parent
PUBLIC = ("penstock", "penstock.plugins", "penstock.testing", "penstock.types")
DOCUMENTED = {
    "penstock.dataflow.pipeline": "docs/policies.md",
    "penstock.planning.sharing.measures": "docs/policies.md",
    "penstock.simulation.engine": "docs/simulation.md",
    "penstock.simulation.from_plan": "docs/simulation.md",
    "penstock.simulation.outcome": "docs/simulation.md",
    "penstock.simulation.scenario": "docs/simulation.md",
}
"""Modules, and the page on which each is described as something to import."""
SEAMS = {
    "penstock.control.deployment": "models made wrong on purpose, as `deploy` corrects them",
    "penstock.control.elasticity.estimates": "the decision of the controller, beside published controllers",
    "penstock.control.elasticity.memory": "the decision of the controller, beside published controllers",
    "penstock.control.elasticity.options": "the decision of the controller, beside published controllers",
    "penstock.control.elasticity.size_decision": "the decision of the controller, beside published controllers",
    "penstock.modelling.library": "demands of a plan's operators, to simulate at rates it was not made for",
    "penstock.planning.prediction.placement": "use of nodes at a rate other than the planned one",
    "penstock.planning.sharing.share": "shares in simulated time, without a controller",
    "penstock.spark.clusters.local.lifecycle": "hosts of a cluster with --namespaces, whose links chaos cuts",
    "penstock.spark.clusters.local.namespaces": "hosts of a cluster with --namespaces, whose links chaos cuts",
    "penstock.spark.session.embedded": "a session in which cases are tasks",
    "penstock.spark.session.interrupts": "Ctrl-C while cases run as tasks",
}
"""Inner modules the lab needs, and why. Shorten it; do not add to it without a reason."""


def imported(text: str) -> set[str]:
    """Return the modules of Penstock that a module imports."""
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return {name for name in modules if name.split(".")[0] == "penstock"}


def uses() -> dict[str, set[str]]:
    return {str(path.relative_to(ROOT)): imported(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def is_public(name: str) -> bool:
    return name in PUBLIC or name.startswith("penstock.testing.")


def test_the_lab_imports_only_public_names_and_known_seams() -> None:
    inner = {path: {name for name in names if not is_public(name)} for path, names in uses().items()}
    wrong = {path: names - set(DOCUMENTED) - set(SEAMS) for path, names in inner.items()}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_an_inner_import_is_seen() -> None:
    assert imported("def f():\n    from penstock.base.files import check") == {"penstock.base.files"}
    assert not is_public("penstock.base.files")


def test_no_seam_is_listed_in_vain() -> None:
    assert {*DOCUMENTED, *SEAMS} - set().union(*uses().values()) == set()


@pytest.mark.parametrize(("module", "page"), sorted(DOCUMENTED.items()))
def test_documented_modules_are_on_their_page(module: str, page: str) -> None:
    assert module in (ROOT.parents[1] / page).read_text("utf-8")
