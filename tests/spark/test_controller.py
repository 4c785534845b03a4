"""The controller on Spark: the day of examples/controller.py, in which everything dies once, and no tuple is lost."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "controller.py"


@pytest.mark.long("a day of three pipelines, in which two dozen Java processes start")
def test_through_a_trigger_and_deaths_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three pipelines: shares as the policy says at every turn, holdings as the Master says, each change explained."""
    monkeypatch.setenv("PENSTOCK_EXAMPLE_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("PYTHONPATH", f"{EXAMPLE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("controller", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    results = example.main(tmp_path / "state")
    for name, (came, lost, doubled) in results.items():
        assert came > 500, name
        assert (lost, doubled) == (0, 0), name
    printed = capsys.readouterr().out
    (tmp_path / "printed").write_text(printed)
    assert "counted waits" in printed
    for told in (
        "fused: priority 2 -> 1",
        "% of a batch have cents above 500 went on, by what it reports",
        "placed: shrink 2 -> 1",
        "counted: start 0 -> 1",
        "node 'n3' joined",
        "node 'n2' was lost",
        "'counted' was killed",
    ):
        assert told in printed
