"""The folder of a sweep: what is kept, what is run again, and how it looks as a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.base.errors import BadInputError
from penstock_lab import sweep as store_module
from penstock_lab.contract import CaseResult, Results
from penstock_lab.sweep import CaseStore, columns, key_of

CASES = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.fixture
def store(tmp_path: Path) -> CaseStore:
    made = CaseStore(tmp_path, "probe")
    made.begin(CASES, quick=True)
    return made


def test_a_finished_case_is_not_missing(store: CaseStore) -> None:
    assert store.missing(CASES) == CASES
    store.keep(CASES[0], {"m": [1, 2.5, None]}, 0.1)
    assert store.missing(CASES) == CASES[1:]
    with pytest.raises(BadInputError, match=r"1 of 2 cases are missing .* run the experiment 'probe' again"):
        store.results(CASES)
    store.keep(CASES[1], {"m": []}, 0.1)
    assert [one.measures for one in store.results(CASES)] == [{"m": [1, 2.5, None]}, {"m": []}]


def test_the_order_of_parameters_does_not_matter() -> None:
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})


def test_a_case_of_other_code_is_run_again(store: CaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.keep(CASES[0], {}, 0.1)
    assert store.missing(CASES[:1]) == []
    monkeypatch.setattr(store_module, "code_version", lambda: "other")
    assert store.missing(CASES[:1]) == CASES[:1]


def test_what_was_asked_for_is_remembered(store: CaseStore) -> None:
    assert store.asked().quick
    assert list(store.asked().cases) == CASES
    with pytest.raises(BadInputError, match="no results of the experiment 'other' here"):
        CaseStore(store.folder, "other").asked()


def test_a_broken_file_is_named(store: CaseStore) -> None:
    path = store.path_of(CASES[0])
    path.write_text("{")
    with pytest.raises(BadInputError, match=path.name):
        store.missing(CASES)
    path.write_text(json.dumps({"experiment": "probe"}))
    with pytest.raises(BadInputError, match="made_by"):
        store.missing(CASES)


def test_a_case_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"has the case .* twice"):
        CaseStore(tmp_path, "probe").begin([{"a": 1}, {"a": 1}], quick=False)


def test_a_measure_without_bound_is_refused(store: CaseStore) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        store.keep(CASES[0], {"m": float("inf")}, 0.1)
    assert store.missing(CASES[:1]) == CASES[:1]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot be made"):
        CaseStore(tmp_path / "file", "probe").begin(CASES, quick=False)


def test_columns_have_one_type_each() -> None:
    results = Results(
        (
            CaseResult({"a": 1, "b": "x"}, {"rate": 1, "nodes": {"n1": 0.5}, "ok": True}),
            CaseResult({"a": 2, "c": 3}, {"rate": 2.5, "nodes": None, "ok": False}),
        )
    )
    assert columns(results) == {
        "a": [1, 2],
        "b": ["x", None],
        "rate": [1.0, 2.5],
        "nodes": ['{"n1": 0.5}', None],
        "ok": [True, False],
        "c": [None, 3],
    }


def test_the_table_is_parquet(store: CaseStore) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    results = Results((CaseResult({"a": 1}, {"rate": 1.5}), CaseResult({"a": 2}, {"rate": None})))
    assert parquet.read_table(store.write_parquet(results)).to_pydict() == {"a": [1, 2], "rate": [1.5, None]}
