"""The page on real Spark, in a real browser: the walk of bench/dashboard_walk.py."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.long("three applications and a browser on one cluster")
def test_what_happens_is_seen_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    walk = importlib.import_module("dashboard_walk")
    if walk.browser_path() is None:
        pytest.skip("no Chromium here; install it (Debian: apt-get install chromium)")
    seen = walk.walk(tmp_path)
    assert {"its share grows", "the decision is explained", "its advice", "the node is lost"} <= set(seen)
    assert {picture.name for picture in tmp_path.glob("*.png")} == {
        f"spark-{name}.png" for name in ("priority", "attached", "cluster", "node-killed")
    }
