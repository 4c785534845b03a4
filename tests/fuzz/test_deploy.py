"""`penstock plans deploy --simulated` with figures that no operator has: one line, no traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from seeds import MODELS, PIPELINE
from trying import faults


@pytest.mark.parametrize("constant", [1e12, 1e22, 1e154, 1.7e308])
@pytest.mark.parametrize("selectivity", [0.1, 1.7e308])
def test_streams(constant: float, selectivity: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = yaml.safe_load(PIPELINE)
    pipeline["streams"][2] |= {"constant": constant, "selectivity": selectivity}
    assert tried(pipeline, MODELS, tmp_path, capsys) == []


@pytest.mark.parametrize("rate", [5e-324, 1e-30, 1e30, 1e154, 1.79e308])
@pytest.mark.parametrize("point", [0, 1])
def test_models(rate: float, point: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = json.loads(json.dumps(MODELS))
    models["models"]["geocode"]["points"][point]["rate"] = rate
    pipeline = yaml.safe_load(PIPELINE)
    pipeline["operators"]["split"]["model"] = "geocode"
    assert tried(pipeline, models, tmp_path, capsys) == []


def tried(pipeline: Any, models: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    (folder / "out").mkdir()
    (folder / "p.yaml").write_text(yaml.safe_dump(pipeline))
    (folder / "m.json").write_text(json.dumps(models))
    words = ["deploy", str(folder / "p.yaml"), "--rate", "10", "--simulated", "--models", str(folder / "m.json")]
    return faults([*words, "--rounds", "1", "--stabilise", "2", "--read", "2", "--json"], folder, capsys)
