"""What is found out of code that does not say what it sends: by which rows, and for how long."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.dataflow.builder import PipelineBuilder
from penstock.engines.fused.frames import CodeOptions
from penstock.engines.fused.query import FusedSpec
from penstock.engines.fused.sources.readers import (
    FILE,
    infer_schemas,
    keep_schemas,
    kept_schemas,
    sample_source,
    schemas_of_run,
)
from penstock.inputs.finders import logic_of
from penstock.runtime.schemas import as_seen, is_seen

pytestmark = pytest.mark.usefixtures("own_runs")

SEEN = as_seen(
    pa.schema(
        [
            ("small", pa.uint8()),
            ("price", pa.decimal128(38, 4)),
            ("at", pa.timestamp("us", "UTC")),
            ("plain", pa.timestamp("us")),
            ("tags", pa.list_(pa.struct([("k", pa.string())]))),
        ]
    )
)


def test_schemas_are_kept_as_they_are(tmp_path: Path) -> None:
    assert kept_schemas(tmp_path, "UTC") == {}
    keep_schemas(tmp_path, {"op": SEEN}, "UTC")
    kept = kept_schemas(tmp_path, "UTC")["op"]
    assert kept.equals(SEEN)
    assert is_seen(kept)
    # moments stay; the clock that shows them is that of the session
    elsewhere = kept_schemas(tmp_path, "Europe/Berlin")["op"]
    assert is_seen(elsewhere)
    assert elsewhere.field("at").type == pa.timestamp("us", "Europe/Berlin")
    assert elsewhere.remove(2).equals(SEEN.remove(2))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"operators": {"op": "AAAA"}}, r"schemas\.json: operators\.op: expected a schema of Arrow in base64"),
        ({"operators": {"op": "not base64"}}, r"operators\.op: expected a schema"),
        ({"operators": []}, r"schemas\.json: operators"),
        ({"format": 7, "more": 1}, r"written by a newer Penstock \(format 7"),
    ],
)
def test_kept_schemas_that_cannot_be_read_are_one_line(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    keep_schemas(tmp_path, {"op": SEEN}, "UTC")
    document = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**document, **change}))
    with pytest.raises(BadInputError, match=complaint):
        kept_schemas(tmp_path, "UTC")


def learned(session: Any, builder: PipelineBuilder) -> dict[str, pa.Schema]:
    pipeline = builder.build()
    return infer_schemas(session, pipeline, CodeOptions("r", logic_of(pipeline)), {})


def lines(folder: Path, count: int = 3) -> Path:
    folder.mkdir()
    text = "".join(json.dumps({"n": n, "at": f"2026-01-01T00:00:0{n}Z"}) + "\n" for n in range(count))
    (folder / "0.json").write_text(text)
    return folder


def test_code_behind_what_only_streams_can_do_needs_no_samples_where_it_has_a_schema(
    session: Any, tmp_path: Path
) -> None:
    def pipeline(**last: Any) -> PipelineBuilder:
        options = {"path": str(lines(tmp_path / f"in{len(last)}"))}
        p = penstock.pipeline("p").source("in", format="json", options=options, schema="n bigint, at timestamp")
        p.then("silent", logic=lambda row: row)
        p.then(
            "once",
            logic=lambda df: df.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["n"]),
            per="dataframe",
        )
        return p.then("last", logic=lambda row: row, **last).sink("out")

    assert list(learned(session, pipeline(schema="n bigint, at timestamp"))) == ["silent"]
    with pytest.raises(BadInputError, match=r"^operator 'last': give schema=.*: .*dropDuplicatesWithinWatermark"):
        learned(session, pipeline())


STREAMS: dict[str, tuple[Callable[[Any, Path], Any], str]] = {
    "socket": (
        lambda session, _: session.readStream.format("socket").option("host", "localhost").option("port", 9).load(),
        "socket",
    ),
    "cleanSource": (
        lambda session, folder: session.readStream.schema("n bigint").option("cleansource", "DELETE").json(str(folder)),
        "a folder with cleanSource=DELETE",
    ),
}


@pytest.mark.parametrize("which", STREAMS)
def test_rows_that_are_given_once_are_not_taken_as_samples(session: Any, tmp_path: Path, which: str) -> None:
    folder = lines(tmp_path / "in")
    stream, named = STREAMS[which]
    p = penstock.pipeline("p").source("events", frame=lambda session: stream(session, folder))
    p.then("parse", logic=lambda row: row)
    complaint = f"^source 'events': {named} may not give rows a second time, .*; give operator 'parse' schema='NAME"
    with pytest.raises(BadInputError, match=complaint):
        learned(session, p.sink("out"))
    assert [file.name for file in folder.iterdir()] == ["0.json"]


def test_a_source_that_nobody_learns_from_is_not_read(session: Any, tmp_path: Path) -> None:
    options = {"path": str(lines(tmp_path / "in"))}
    p = penstock.pipeline("p").source("files", format="json", options=options, schema="n bigint")
    p.then("silent", reads="files", logic=lambda row: row)
    p.source("lines", format="socket", options={"host": "localhost", "port": "9"})
    p.then("said", reads="lines", logic=lambda row: row, schema="n bigint")
    p.sink("out", reads=["silent", "said"])
    assert learned(session, p)["silent"].names == ["n"]


def test_files_are_sampled_without_being_cleaned(session: Any, tmp_path: Path) -> None:
    folder = lines(tmp_path / "in")
    options = {"path": str(folder), "cleanSource": "delete"}
    p = penstock.pipeline("p").source("in", format="json", options=options, schema="n bigint").sink("out").build()
    assert sample_source(session, p.operators["in"]).count() == 3
    assert [file.name for file in folder.iterdir()] == ["0.json"]


def test_a_run_that_goes_on_sends_the_columns_it_began_with(session: Any, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    p = penstock.pipeline("p").source("in", format="json", options={"path": str(source)}, schema="n double")
    p.then("whole", logic=lambda row: {"n": row["n"] if row["n"] % 1 else int(row["n"])})
    pipeline = p.sink("out").build()
    code = logic_of(pipeline)
    spec = FusedSpec("r", pipeline, code, {}, 1, tmp_path, str(tmp_path / "checkpoint"))

    def seen(number: float) -> pa.DataType:
        (source / f"{number}.json").write_text(json.dumps({"n": number}))
        return schemas_of_run(session, spec, CodeOptions("r", code))["whole"].field("n").type

    assert seen(1.0) == pa.int64()
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").touch()
    assert seen(2.5) == pa.int64()
    # nothing was sent yet: whatever is there now counts
    (offsets / "0").unlink()
    assert seen(3.5) == pa.float64()
