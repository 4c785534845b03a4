"""What code opened in a worker is closed: when its run ends, and when the worker does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark.worker
import pytest
from processes import until

import penstock
from penstock.engines.fused import query as engine
from penstock.spark.internals import worker_process as worker_end

pytestmark = pytest.mark.usefixtures("own_runs")


def buffered(folder: Path) -> Any:
    """Every worker writes what it gets to a file of its own, by way of a buffer that only `close` empties."""
    (folder / "in").mkdir()
    for part in range(4):
        (folder / "in" / f"{part}.json").write_text("".join(f'{{"n": {10 * part + n}}}\n' for n in range(10)))
    (folder / "written").mkdir()

    def begin() -> list[str]:
        (folder / "written" / f"{os.getpid()}.begun").touch()
        return [str(threading.get_ident())]

    def note(row: dict[str, Any], lines: list[str]) -> dict[str, Any]:
        lines.append(str(row["n"]))
        return row

    def end(lines: list[str]) -> None:
        assert lines.pop(0) == str(threading.get_ident())
        (folder / "written" / f"{os.getpid()}.lines").write_text("\n".join(lines))

    options = {"path": str(folder / "in"), "maxFilesPerTrigger": "2"}
    p = penstock.pipeline("buffered").source("in", format="json", options=options, schema="n bigint")
    p.then("note", logic=note, schema="n bigint", open=begin, close=end)
    return p.sink("out", parquet=str(folder / "out"))


def lines_of(folder: Path) -> list[int]:
    return sorted(int(line) for file in (folder / "written").glob("*.lines") for line in file.read_text().split())


def test_what_code_opened_is_closed_when_its_run_ends(session: Any, tmp_path: Path) -> None:
    penstock.run(buffered(tmp_path), session=session, slots=2, until_end=True)
    assert lines_of(tmp_path) == list(range(40))


def test_what_cannot_be_closed_is_in_the_report(session: Any, tmp_path: Path) -> None:
    def burst(_lines: object) -> None:
        raise OSError("the disk is full")

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"n": 1}\n')
    p = penstock.pipeline("p").source("in", format="json", options={"path": str(tmp_path / "in")}, schema="n bigint")
    p.then("last", logic=lambda row, _opened: row, schema="n bigint", open=list, close=burst).sink("end")
    notes = penstock.run(p, session=session, slots=2, until_end=True).report.notes
    assert "what code opened could not be closed: OSError: the disk is full" in notes


def test_what_code_opened_is_closed_when_its_worker_ends(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "close_in_workers", lambda *_: [])
    penstock.run(buffered(tmp_path), session=session, slots=2, until_end=True)
    begun = list((tmp_path / "written").glob("*.begun"))
    assert begun
    assert not lines_of(tmp_path)
    for file in begun:
        os.kill(int(file.stem), signal.SIGHUP)  # as Spark's daemon does when the session ends
    until(lambda: len(lines_of(tmp_path)) == 40)
    until(lambda: not any(Path(f"/proc/{file.stem}").exists() for file in begun))


@pytest.fixture
def signals() -> Iterator[None]:
    """Are what they were afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_a_worker_that_java_hangs_up_on_closes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def run_task(infile: str, _outfile: str) -> None:
        log.append(infile)
        if infile == "hung up":
            raise SystemExit(-1)

    monkeypatch.setattr(pyspark.worker, "main", run_task)
    monkeypatch.setattr(worker_end, "_closers", [])
    worker_end.close_at_end(lambda: log.append("closed"))
    pyspark.worker.main("first", "")
    assert signal.getsignal(signal.SIGHUP) is worker_end._leave
    worker_end.die_of_signals()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    with pytest.raises(SystemExit):
        pyspark.worker.main("hung up", "")
    assert log == ["first", "hung up", "closed"]


OLDER_DAEMON = """
def worker(infile):
    worker_main(infile, "")
"""


@pytest.mark.usefixtures("signals")
def test_so_does_a_worker_of_an_older_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def run_task(infile: str, _outfile: str) -> None:
        if infile == "hung up":
            raise SystemExit(-1)
        worker_end.close_at_end(lambda: log.append("closed"))

    monkeypatch.setattr(pyspark.worker, "main", run_task)
    monkeypatch.setattr(worker_end, "_closers", [])
    daemon: dict[str, Any] = {"worker_main": run_task}
    exec(OLDER_DAEMON, daemon)  # noqa: S102 - a module with names of its own
    daemon["worker"]("first")
    with pytest.raises(SystemExit):
        daemon["worker"]("hung up")
    assert log == ["closed"]
