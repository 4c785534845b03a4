"""What operators need together, started only where it is needed."""

from __future__ import annotations

import io
from pathlib import Path

from penstock.workloads.operators import (
    reference_logic,
    services,
)
from penstock.workloads.operators.azure import BLOB_URL, TABLE_DATABASE, TABLE_DELAY, is_complete
from penstock.workloads.operators.file_write import WRITE_FOLDER
from workload_builders import AT_ONCE, answers


def test_services_start_only_what_is_needed(tmp_path: Path) -> None:
    with services(["pi", "parse_xml", "somebody's own"], folder=tmp_path) as environment:
        assert environment == {}
    with services(["batch_file_write"], folder=tmp_path) as environment:
        written = Path(environment[WRITE_FOLDER])
        assert written.is_dir()
    assert not written.exists()
    assert not list(tmp_path.iterdir())


def test_services_hand_on_what_is_given(tmp_path: Path) -> None:
    given = {BLOB_URL: "http://elsewhere", TABLE_DATABASE: "/elsewhere", WRITE_FOLDER: "/elsewhere", "HOME": "/"}
    with services(reference_logic, folder=tmp_path, table_delay_ms=5, given=given) as environment:
        assert environment == {name: value for name, value in given.items() if name != "HOME"} | {TABLE_DELAY: "5"}
    assert not list(tmp_path.iterdir())


def test_services_report_progress_and_end(tmp_path: Path) -> None:
    heard = io.StringIO()
    with services(
        ["azure_table", "azure_blob"],
        blob=AT_ONCE,
        folder=tmp_path,
        rows=10,
        progress=lambda done, all_: print(done, all_, file=heard),
    ) as environment:
        assert is_complete(Path(environment[TABLE_DATABASE]), 10)
        assert answers(environment[BLOB_URL])
    assert heard.getvalue() == "10 10\n"
    assert not answers(environment[BLOB_URL])
