"""Modules of the user's own reach workers that do not have the driver's path."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.base.errors import BadInputError
from penstock.spark.session import user_modules as own_modules
from penstock.spark.session.user_modules import own_archive_in, own_files


def loaded(name: str, file: Path, *, is_package: bool = False) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(file)
    if is_package:
        module.__path__ = [str(file.parent)]
    return module


def test_what_is_sent(tmp_path: Path) -> None:
    for name in ("orders.py", "helpers.py", "notes.txt", "shop/__init__.py", "shop/deep/prices.py", "plain/rates.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    library = tmp_path / "lib" / "site-packages" / "pandas.py"
    files = own_files(
        [
            loaded("orders", tmp_path / "orders.py"),
            loaded("shop", tmp_path / "shop" / "__init__.py", is_package=True),
            loaded("plain.rates", tmp_path / "plain" / "rates.py"),  # its package has no file
            loaded("pandas", library),
            loaded("json", Path(importlib.import_module("json").__file__ or "")),
            loaded("penstock", tmp_path / "penstock.py"),
            loaded("__main__", tmp_path / "script.py"),
            loaded("compiled", tmp_path / "compiled.so"),
            ModuleType("built_in"),
        ]
    )
    assert sorted(files) == ["helpers.py", "orders.py", "plain/rates.py", "shop/__init__.py", "shop/deep/prices.py"]


def test_of_a_package_only_modules_are_sent_and_what_it_names(tmp_path: Path) -> None:
    names = ("__init__.py", ".env", "key.pem", "old.pyc", "tables/rates.csv", "tables/.env", "deep/prices.py")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    shop = loaded("shop", tmp_path / "__init__.py", is_package=True)
    assert sorted(own_files([shop])) == ["shop/__init__.py", "shop/deep/prices.py"]
    shop.PENSTOCK_DATA = ["tables/*.csv"]  # type: ignore[attr-defined]
    assert sorted(own_files([shop])) == ["shop/__init__.py", "shop/deep/prices.py", "shop/tables/rates.csv"]


@pytest.mark.parametrize("named", ["tables/*.csv", [1], ["../secrets/*"], ["/etc/*"]])
def test_data_that_is_not_of_the_package_is_refused(tmp_path: Path, named: object) -> None:
    shop = loaded("shop", tmp_path / "__init__.py", is_package=True)
    shop.PENSTOCK_DATA = named  # type: ignore[attr-defined]
    with pytest.raises(BadInputError, match=r"shop\.PENSTOCK_DATA: "):
        own_files([shop])


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_modules, "MOST_BYTES", 2**20)
    (tmp_path / "large_orders.py").write_bytes(b"#" * 2**21)
    monkeypatch.setitem(sys.modules, "large_orders", loaded("large_orders", tmp_path / "large_orders.py"))
    with pytest.raises(BadInputError, match="put its code into a folder of its own"):
        own_archive_in(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_workers_find_what_was_sent(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sent_along.py").write_text("import sent_too\ndef answer(n):\n    return sent_too.TIMES * n\n")
    (tmp_path / "sent_too.py").write_text("TIMES = 21\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    answer = importlib.import_module("sent_along").answer

    def answers() -> list[int]:
        return list(session.sparkContext.parallelize([2], 1).map(answer).collect())

    with pytest.raises(Exception, match="No module named 'sent_along'"):
        answers()
    archive = own_archive_in(tmp_path / "out")
    assert archive is not None
    # tests behind this one go on without it
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(session.sparkContext, "_python_includes", [*session.sparkContext._python_includes])
    session.sparkContext.addPyFile(str(archive))
    assert answers() == [42]
