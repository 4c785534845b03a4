"""The highest rate of a placed run: which loads are offered and which run is shown, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError
from penstock.cli.reports import print_report
from penstock.engines.placed import engine
from penstock.engines.placed.engine import PlacedPrepared
from penstock.planning.prediction.forecast import RunForecast
from penstock.report.report import Audit, Report
from penstock.report.result import PlacedResult
from penstock.runs.folder import RunFolder

ABLE = 55.0


@contextmanager
def no_session(*_: Any) -> Iterator[None]:
    yield


def conducted(_engine: Any, prepared: PlacedPrepared, folder: RunFolder, _listener: Any) -> PlacedResult:
    """A cluster that does 55 tuples/s."""
    offered = prepared.job.load.mean_rate
    done = min(offered, ABLE)
    rising = 0.0 if offered <= ABLE else 0.5
    report = Report(offered, done, rising, 10.0, {}, 0, {}, {}, Audit(100, 0, 0, 0, 0), 10)
    return PlacedResult(
        "linear", folder.place, "shuffle", 80.0, None, RunForecast("placed", 100.0, 1, 1.0), report, (), (), 0.0, 0.0
    )


def test_the_run_shown_is_the_best_of_the_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "Run", conducted)
    monkeypatch.setattr(engine, "await_with_interrupts", lambda result: result)
    monkeypatch.setattr(engine, "placed_session", no_session)
    found = penstock.run(penstock.plan("linear", 100), engine="placed", find_max=True, folder=tmp_path)
    assert found.highest_rate is not None
    assert 0.94 * ABLE <= found.highest_rate <= ABLE
    assert found.report.offered_rate == found.highest_rate
    assert found.tried[0].saturated
    assert found.document()["tried"][0]["sustained_rate"] == ABLE
    print_report(found, json=False)
    assert "highest stable rate" in capsys.readouterr().out


def test_a_rate_and_a_search_do_not_go_together() -> None:
    with pytest.raises(BadInputError, match="find_max= searches for the rate itself"):
        penstock.run(penstock.plan("linear", 100), rate=50, engine="placed", find_max=True)
