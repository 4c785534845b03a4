"""Mistakes with `penstock cluster`, and the words its commands understand."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import BadInputError
from penstock.cli.main import run
from penstock.spark.clusters.local.foreground import is_loopback, master_host
from penstock.spark.session.secret import read_secret


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("up", 2, "expected nodes and slots, or a cluster file"),
        ("up --nodes 2 --slots 2 --cluster missing.yaml", 2, "give either"),
        ("up --cluster missing.yaml", 2, "missing.yaml: cannot be read"),
        ("up --nodes 0 --slots 2", 2, "--nodes"),
        ("status", 1, "no cluster runs in"),
        ("master", 2, "give --secret-file FILE, the same on all machines"),
        ("master --open --secret-file missing", 2, "or --open"),
        ("worker --master spark://10.0.0.1:7077 --node n1 --slots 1", 2, "give --secret-file FILE"),
        ("worker --secret-file SECRET --master nonsense --node n1 --slots 1", 2, "expected spark://host:port"),
        ("worker --secret-file SECRET --master spark://10.0.0.1:7077 --node n1 --slots 1", 2, "say by --host"),
        ("worker --secret-file SECRET --master spark://localhost:1 --node n1 --slots 1 --memory 10", 2, "at least 512"),
        ("master --secret-file missing", 2, "missing: cannot be read"),
    ],
)
def test_mistakes_are_one_line(
    words: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "none"))
    secret = tmp_path / "secret"
    secret.write_text("s" * 20)
    assert run(["cluster", *words.replace("SECRET", str(secret)).split()]) == code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_ending_no_cluster_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "down", "--folder", str(tmp_path / "none")]) == 0
    assert "nothing to end" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("h", False)],
)
def test_loopback_is_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_a_master_url_names_a_host() -> None:
    assert master_host("spark://machine-1.lan:7077") == "machine-1.lan"


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("short\n")
    with pytest.raises(BadInputError, match="at least 16 characters"):
        read_secret(file)
    file.write_text("long-enough-to-do\n")
    assert read_secret(file) == "long-enough-to-do"
    file.write_text("two lines of\nsecret text\n")
    with pytest.raises(BadInputError, match="on one line"):
        read_secret(file)
