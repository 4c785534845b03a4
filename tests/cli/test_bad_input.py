"""Bad input: one clear line on standard error, exit code 2, nothing written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from outcome import Penstock

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = "name: p\noperators: {s: {kind: source}, x: {model: pi}, o: {kind: sink}}\n"
STREAMS = "streams: [{from: s, to: x}, {from: x, to: o}]\n"

PIPELINES = {
    "unknown operator": (GOOD + "streams: [{from: s, to: y}]\n", "streams[0].to: unknown operator 'y'"),
    "duplicate operator": ("name: p\noperators: {s: {kind: source}, s: {model: pi}}\n", "'s' appears twice"),
    "cycle": (
        "name: p\noperators: {s: {kind: source}, a: {model: pi}, b: {model: pi}}\n"
        "streams: [{from: s, to: a}, {from: a, to: b}, {from: b, to: a}]\n",
        "'a' -> 'b' -> 'a'",
    ),
    "no source": ("name: p\noperators: {a: {model: pi}, o: {kind: sink}}\nstreams: [{from: a, to: o}]\n", "no source"),
    "negative selectivity": (
        GOOD + "streams: [{from: s, to: x, selectivity: -1}, {from: x, to: o}]\n",
        "streams[0].selectivity",
    ),
    "NaN selectivity": (
        GOOD + "streams: [{from: s, to: x, selectivity: .nan}, {from: x, to: o}]\n",
        "streams[0].selectivity",
    ),
    "negative demand": (
        "name: p\noperators: {s: {kind: source}, x: {threads: 1, cpu: -5, memory_mb: 10}}\n"
        "streams: [{from: s, to: x}]\n",
        "operators.x.cpu",
    ),
    "unknown key": (GOOD + "streams: [{from: s, to: x, selectivty: 2}]\n", "did you mean 'selectivity'?"),
    "unknown grouping": (GOOD + "streams: [{from: s, to: x, grouping: shufle}]\n", "streams[0].grouping"),
    "unknown model": (GOOD.replace("pi", "pie") + STREAMS, "did you mean 'pi'?"),
    "not a mapping": ("- a\n- b\n", "expected a mapping"),
    "empty": ("", "expected a mapping"),
    "tag": ("name: !!python/object/apply:os.system ['true']\n", "tag"),
    "anchor": ("name: &a p\noperators: *a\n", "anchors and aliases"),
    "not YAML": ("name: [\n", "not valid YAML"),
}


@pytest.mark.parametrize("case", PIPELINES)
def test_bad_pipelines(penstock: Penstock, tmp_path: Path, case: str) -> None:
    text, expected = PIPELINES[case]
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    outcome = penstock("plan", file, "--rate", 10, "-o", tmp_path / "plan.json", "--plot", tmp_path / "plan.png")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert expected in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("plan", "linear", "--rate", "-5"), "above 0, found -5"),
        (("plan", "linear", "--rate", "0"), "above 0, found 0"),
        (("plan", "linear", "--rate", "nan"), "found nan"),
        (("plan", "linear", "--rate", "inf"), "found inf"),
        (("plan", "linear", "--rate", "ten"), "--rate"),
        (("plan", "linear"), "--rate"),
        (("run", "linear"), "--rate: expected tuples/s"),
        (("run", "linear", "--rate", "5", "--plot", "run.gif"), "run.gif"),
        (("run", "linear", "--rate", "waves:5"), "expected a rate, steps:SECONDSxRATE"),
        (("run", "linear", "--rate", "5", "--high", "9"), "only with --find-max"),
        (("run", "linear", "--rate", "5", "--executor-memory", "9999"), "--executor-memory: only on a cluster"),
        (("run", "linear", "--rate", "5", "--max-dead-letter-ratio", "2"), "expected 0 to 1, found 2"),
        (("run", "linear", "--rate", "5", "--folder", "s4://b/x"), "error: --folder: s4://b/x: cannot be reached: "),
        (
            ("run", "x.json", "--engine", "placed", "--checkpoint", "c"),
            "--checkpoint: not an option of engine 'placed'; leave it out, or use --engine fused",
        ),
        (
            ("run", "linear", "--rate", "5", "--tls", "t.pem"),
            "--tls: not an option of engine 'fused'; leave it out, or use --engine placed",
        ),
        (
            ("run", "linear", "--rate", "5", "--engine", "fuse"),
            "--engine: unknown engine 'fuse'; did you mean 'fused'?",
        ),
        (("run", "linear", "--rate", "5", "--conf", "a"), "--conf: expected KEY=VALUE, found 'a'"),
        (("run", "missing.json"), "missing.json: cannot be read"),
        (("plan", "linaer", "--rate", "5"), "did you mean 'linear'?"),
        (("plan", "linear", "--rate", "5", "--allocator", "mbaa"), "unknown allocator 'mbaa'; did you mean 'mba'?"),
        (("plan", "linear", "--rate", "5", "--placer", "dsm"), "known: round-robin, rsm, sam, r-storm"),
        (("plan", "linear", "--rate", "5", "--placer", "rsm:demnd=average"), "did you mean 'demand'?"),
        (("plan", "linear", "--rate", "5", "--placer", "rsm:demand=most"), "average"),
        (("plan", "linear", "--rate", "5", "--catalogue", "azure-e"), "did you mean 'azure-d'?"),
        (("plan", "linear", "--rate", "5", "--routing", "random"), "routing"),
        (("plan", "linear", "--rate", "5", "--acquisition", "all"), "acquisition"),
        (("plan", "linear", "--rate", "5", "--plot", "plan.gif"), "plan.gif"),
        (("plan", "linear", "--rate", "5", "-o", "no/such/folder/plan.json"), "cannot be written"),
        (("plan", "missing.yaml", "--rate", "5"), "missing.yaml: cannot be read"),
        (("plan", "missing.module:p", "--rate", "5"), "missing"),
        (("plan", "linear", "--rate", "5", "--compare", "--explain"), "--compare"),
        (("plans", "capacity", "linear", "--cluster", "missing.yaml"), "missing.yaml"),
        (("cluster", "place", "missing.json"), "missing.json"),
        (("cluster", "place", "yahoo-1312-nodes", "--placer", "sam"), "not a whole cluster"),
        (("plans", "diff", "missing.json", "other.json"), "missing.json"),
        (("models", "show", "pie"), "did you mean 'pi'?"),
        (("models", "plot", "-o", "models.bmp"), "models.bmp"),
        (("frobnicate",), "frobnicate"),
        (("plan", "linear", "--rate", "5", "--frobnicate"), "--frobnicate"),
    ],
)
def test_bad_arguments(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = penstock(*words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert expected in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("raise ValueError('a\\nb')", "ValueError: a\\nb"),
        ("def work(:", "SyntaxError: invalid syntax"),
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("", "AttributeError: "),
    ],
)
def test_code_that_cannot_be_imported(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, raised: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "breaks_on_import", raising=False)
    (tmp_path / "breaks_on_import.py").write_text(code)
    operators = "{s: {kind: source}, x: {run: 'breaks_on_import:work'}, o: {kind: sink}}"
    (tmp_path / "p.yaml").write_text(f"name: p\noperators: {operators}\n{STREAMS}")
    for verb, *options in (("run", "--rate", 5, "--seconds", 1), ("profile", "-o", tmp_path / "m.json")):
        outcome = penstock(verb, tmp_path / "p.yaml", *options)
        assert outcome.code == 2
        assert outcome.err.startswith(f"error: operator 'x': run 'breaks_on_import:work': {raised}")
        assert outcome.err.count("\n") == 1


CLUSTERS = {
    "no slots": ("nodes: [{slots: 0}]\n", "nodes[0].slots"),
    "capacity 0": ("nodes: [{slots: 4, memory_mb: 0}]\n", "nodes[0].memory_mb"),
    "no nodes": ("nodes: []\n", "at least one node"),
    "unknown dimension": ("nodes: [{slots: 4}]\ndimensions: {gpu: {hard: true}}\n", "dimensions.gpu"),
    "absurd count": ("nodes: [{slots: 4, count: 999999999}]\n", "at most 20000"),
    "absurd slots": ("nodes: [{slots: 5000}]\n", "at most 4096"),
    "text for a number": ("nodes: [{slots: four}]\n", "nodes[0].slots"),
}


@pytest.mark.parametrize("case", CLUSTERS)
def test_bad_clusters(penstock: Penstock, tmp_path: Path, case: str) -> None:
    text, expected = CLUSTERS[case]
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    for words in (
        ("plans", "capacity", "linear", "--cluster", file),
        ("plan", "linear", "--rate", 10, "--cluster", file),
    ):
        outcome = penstock(*words)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert expected in outcome.err


def test_a_cluster_that_is_too_small_is_a_refusal(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [{slots: 2}]\n")
    outcome = penstock("plan", "linear", "--rate", 100, "--cluster", file, "-o", tmp_path / "plan.json")
    assert outcome.code == 1
    assert (
        outcome.err
        == "refused: mba: pipeline 'linear' needs 7 slots, closest is the whole cluster with 2 (5 missing)\n"
    )
    assert not (tmp_path / "plan.json").exists()


def test_a_thread_that_fits_no_slot_is_a_refusal(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\noperators: {s: {kind: source}, x: {threads: 2, cpu: 50, memory_mb: 9000}}\n"
        "streams: [{from: s, to: x}]\n"
    )
    outcome = penstock("plan", file, "--rate", 10)
    assert outcome.code == 1
    assert "operator 'x' needs" in outcome.err
    assert "missing" in outcome.err


def test_a_complaint_about_something_long_is_short(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(GOOD + f"streams: [{{from: s, to: {'y' * 100_000}}}]\n")
    outcome = penstock("plan", file, "--rate", 10)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {file}: pipeline 'p': streams[0].to: unknown operator 'yyyy")
    assert outcome.err.endswith("'; known: s, x, o\n")
    assert len(outcome.err) < 2100


def test_a_step_too_fine_to_tell_is_refused(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [{slots: 4}]\n")
    outcome = penstock("plans", "capacity", "linear", "--cluster", file, "--step", "1e-300")
    assert outcome.code == 2
    assert "1e-300 is too fine" in outcome.err


def test_a_file_above_the_limit_is_refused(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as handle:
        handle.truncate(100 * 1024 * 1024)
    outcome = penstock("plan", file, "--rate", 10)
    assert outcome.code == 2
    assert "larger than the limit of 32 MB" in outcome.err


def test_memory_too_small_to_divide_is_refused(penstock: Penstock, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: [{count: 3, slots: 4, memory_mb: 5.0e-324}]")
    outcome = penstock("plan", "linear", "--rate", 10, "--cluster", cluster)
    assert outcome.code == 2
    assert "memory_mb" in outcome.err


def test_more_bundles_than_can_be_compared_with_slots_are_refused(penstock: Penstock, tmp_path: Path) -> None:
    profiles = json.loads((EXAMPLES / "profiles.json").read_text())
    profiles["profiles"]["parse"]["memory_mb"] = 2e8
    (tmp_path / "profiles.json").write_text(json.dumps(profiles))
    (tmp_path / "counted.yaml").write_text(
        "name: counted\n"
        "operators: {spout: {kind: source}, parse: {model: parse}, split: {model: split}, count: {model: count}}\n"
        "streams: [{from: spout, to: parse}, {from: parse, to: split}, {from: split, to: count}]\n"
    )
    words = ("plan", tmp_path / "counted.yaml", "--rate", 1, "--models", tmp_path / "profiles.json")
    outcome = penstock(*words, "--allocator", "lsa")
    assert outcome.code == 1
    assert "the limit of placer sam" in outcome.err
