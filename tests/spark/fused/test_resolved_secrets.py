"""Options that the driver looks up when a run starts, and that nothing it writes repeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError

SECRET = "hush-hush-4711"  # noqa: S105 - that is the point


def test_a_resolved_secret_reaches_spark_and_no_file_of_the_run(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACEHOLDER", SECRET)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"a": null, "b": 1}\n{"a": "x", "b": 2}\n')
    # what stands for nothing in a CSV is as good a secret as any: it can be seen to have arrived
    options = {"path": str(tmp_path / "out"), "nullValue.env": "PLACEHOLDER"}
    pipeline = (
        penstock.pipeline("p")
        .source("s", files=str(tmp_path / "in" / "*.json"), schema="a string, b bigint")
        .sink("k", format="csv", options=options)
        .build()
    )
    result = penstock.run(pipeline, session=session, slots=2, until_end=True, folder=tmp_path / "run")
    written = "".join(file.read_text() for file in (tmp_path / "out").rglob("*.csv"))
    assert f"{SECRET},1" in written
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    assert SECRET not in json.dumps(result.report.document(), default=str)


def test_what_spark_says_of_a_secret_is_repeated_without_it(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHARSET", SECRET)
    (tmp_path / "in.csv").write_text("a\n1\n")
    pipeline = (
        penstock.pipeline("p")
        .source("s", files=str(tmp_path / "in.csv"), options={"encoding.env": "CHARSET"})
        .sink("k")
        .build()
    )
    with pytest.raises(BadInputError) as refused:
        penstock.run(pipeline, session=session, slots=2, until_end=True, folder=tmp_path / "run")
    assert "***" in str(refused.value)
    assert SECRET not in str(refused.value)
