"""A run as an object, in a session of the user's own; and the folder it lives in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from processes import until

import penstock
from penstock.base.clock import pause
from penstock.base.errors import BadInputError, RefusedError
from penstock.runs.folder import RunBusyError, RunFolder, list_runs
from penstock.runs.states import RunState

pytestmark = pytest.mark.usefixtures("own_runs")


FILES = 16
"""Each is a batch: more than come while a run that has made three of them is drained."""


def counting(folder: Path, name: str = "counting") -> Any:
    p = penstock.pipeline(name).source("load").then("same", logic=lambda row: row, schema="value bigint")
    return p.sink("out", parquet=str(folder))


def values(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder)["value"].to_pylist())


def test_a_run_is_asked_changed_and_ended(session: Any, tmp_path: Path) -> None:
    before = dict(session.sparkContext.getConf().getAll())
    views = session.catalog.listTables()
    folder = tmp_path / "run"
    handle = penstock.start(counting(tmp_path / "out"), 500, session=session, slots=2, folder=folder)
    try:
        until(lambda: handle.last_progress is not None)
        assert (str(handle.status), handle.slots) == ("running", 2)
        figures = handle.last_progress
        assert figures is not None
        assert figures.sustained > 0
        assert not handle.await_termination(0.1)
        with pytest.raises(RefusedError, match="its Spark session"):
            handle.rescale(3)
        with pytest.raises(RunBusyError, match=r"process \d+ on .* conducts the run"):
            penstock.start(counting(tmp_path / "out"), 500, session=session, slots=2, folder=folder)
        [listed] = list_runs()
        assert (listed.folder, listed.pipeline, listed.state) == (folder, "counting", RunState.RUNNING)
        _vandalise(folder)
        pause(1.5)
        assert str(handle.status) == "running"
        assert RunFolder(folder).state()[0] is RunState.RUNNING  # written anew
        with pytest.raises(BadInputError, match="unknown request 'dance'"):
            RunFolder(folder).ask("dance")
    finally:
        first = handle.stop()
    assert str(handle.status) == "stopped"
    assert (first.report.audit.lost, first.report.audit.duplicated) == (0, 0)
    assert values(tmp_path / "out") == list(range(first.report.audit.emitted))

    with pytest.raises(BadInputError, match="pipeline 'counting' ran here, not 'another'"):
        penstock.start(counting(tmp_path / "out", "another"), 500, session=session, slots=2, folder=folder)

    again = penstock.start(counting(tmp_path / "out"), 500, session=session, slots=2, folder=folder)
    until(lambda: again.last_progress is not None)
    again.kill()
    second = again.report()
    assert second.report.audit.emitted > first.report.audit.emitted
    assert (second.report.audit.lost, second.report.audit.duplicated) == (0, 0)
    assert set(values(tmp_path / "out")) >= set(range(second.report.audit.emitted))
    assert len(values(tmp_path / "out")) == len(set(values(tmp_path / "out")))

    assert session.range(3).count() == 3
    assert dict(session.sparkContext.getConf().getAll()) == before
    assert session.catalog.listTables() == views


def _vandalise(folder: Path) -> None:
    """What others may leave in the folder of a run that lives."""
    (folder / "state.json").write_text("")
    (folder / "requests" / "empty.json").write_text("")
    (folder / "requests" / "half.json").write_text('{"ask": "dra')
    (folder / "requests" / "list.json").write_text("[1, 2]")
    (folder / "requests" / "number.json").write_text(json.dumps({"ask": 5}))
    (folder / "requests" / "odd.json").write_text(json.dumps({"ask": "rescale", "slots": "many"}))
    (folder / "requests" / "folder.json").mkdir()


def test_a_batch_that_its_sink_has_already_is_not_lost(session: Any, tmp_path: Path) -> None:
    """Its process died behind the sink: whoever goes on leaves the batch out, and counts it all the same."""
    batches = tmp_path / "batches"
    batches.mkdir()

    def write_once(frame: Any, batch: int) -> None:
        if not (batches / str(batch)).exists():
            frame.write.format("noop").mode("overwrite").save()
            (batches / str(batch)).touch()

    p = penstock.pipeline("once").source("load").then("same", logic=lambda row: row, schema="value bigint")
    p.sink("out", write=write_once)
    folder = tmp_path / "run"
    handle = penstock.start(p, 500, session=session, slots=2, folder=folder)
    until(lambda: handle.last_progress is not None)
    first = handle.stop().report.audit
    commits = folder / "checkpoint" / "commits"
    last = max(int(entry.name) for entry in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    (folder / "audit" / f"{last:012d}").unlink()
    again = penstock.start(p, 500, session=session, slots=2, folder=folder)
    until(lambda: again.last_progress is not None)
    again.kill()
    audit = again.report().report.audit
    assert (audit.lost, audit.duplicated) == (0, 0)
    assert audit.emitted > first.emitted


def test_a_file_source_is_drained_between_batches(session: Any, tmp_path: Path) -> None:
    """Spark's sources do not hold: what a drain leaves to the next start is neither half in the sink nor lost."""
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        (tmp_path / "in" / f"{number}.json").write_text("".join(f'{{"n": {100 * number + n}}}\n' for n in range(100)))
    options = {"path": str(tmp_path / "in"), "maxFilesPerTrigger": "1"}

    def pipeline() -> Any:
        p = penstock.pipeline("files").source("in", format="json", options=options, schema="n bigint")
        p.then("same", logic=lambda row: row, schema="n bigint")
        return p.sink("out", parquet=str(tmp_path / "out"))

    handle = penstock.start(pipeline(), session=session, slots=2, folder=tmp_path / "run", batch_interval_ms=1)
    until(lambda: len(list((tmp_path / "out").glob("*.parquet"))) >= 3)
    drained = handle.stop()
    there = sorted(pq.read_table(tmp_path / "out")["n"].to_pylist())
    assert len(there) % 100 == 0
    assert 300 <= len(there) == drained.report.audit.emitted < 100 * FILES
    penstock.run(pipeline(), session=session, slots=2, folder=tmp_path / "run", until_end=True)
    assert sorted(pq.read_table(tmp_path / "out")["n"].to_pylist()) == list(range(100 * FILES))


def test_a_run_whose_first_batch_never_ends_is_stopped(session: Any, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def hang(row: dict[str, Any]) -> dict[str, Any]:
        begun.touch()
        pause(300)
        return row

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"n": 1}\n')
    p = penstock.pipeline("hanging").source("in", files=str(tmp_path / "in" / "*.json"), schema="n bigint")
    p.then("hang", logic=hang, schema="n bigint").sink("out")
    handle = penstock.start(p, session=session, slots=2, folder=tmp_path / "run")
    until(begun.exists)
    assert str(handle.status) == "running"
    handle.kill()
    assert handle.report().report.audit.emitted == 0
    assert RunFolder(tmp_path / "run").state()[0] is RunState.STOPPED


@pytest.mark.parametrize("text", ["", "{", "[]", '{"engine": "fused"}', '{"engine": "fused", "format": 99}'])
def test_a_description_that_cannot_be_read_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(BadInputError, match=r"run\.json") as told:
        _ = RunFolder(tmp_path).description
    assert "\n" not in str(told.value)
    assert list_runs() == []


def test_a_run_that_cannot_begin_leaves_nothing(session: Any, tmp_path: Path, own_runs: Path) -> None:
    p = penstock.pipeline("nowhere").source("in", format="no-such-format", schema="n bigint").sink("out")
    with pytest.raises(BadInputError, match=r"source 'in': .*no-such-format") as told:
        penstock.run(p, session=session, slots=2, until_end=True)
    assert "\n" not in str(told.value)
    assert list_runs() == []
    assert not own_runs.exists() or list(own_runs.iterdir()) == []
