"""Files nobody vouches for are refused in one line; files we write are whole or not there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.base.errors import BadInputError
from penstock.base.files import (
    DEEPEST_NESTING,
    LARGEST_FILE,
    LARGEST_YAML,
    atomic_path,
    parse_json,
    parse_yaml,
    private_folder,
    read_document,
    read_text,
    sweep_temporary_folders,
    temporary_folder,
    write_output,
    write_text,
)


def refused(path: Path, content: bytes | str) -> str:
    """The complaint about a file of that content: one line that names the file first."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(BadInputError) as caught:
        read_document(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(
            "!!python/object:os.system {}", "line 1: tag .*python/object:os.system' is not accepted", id="tag"
        ),
        pytest.param("a: !!python/object/apply:os.system [ls]", "tag .* is not accepted; plain values", id="apply tag"),
        pytest.param("a: !!set {x}", "line 1: tag .* is not accepted", id="safe tag"),
        pytest.param("a: !mine 5", "line 1: tag '!mine' is not accepted", id="own tag"),
        pytest.param("a: &x 1\n", "line 1: anchors and aliases are not accepted", id="anchor"),
        pytest.param("a: 1\nb: *x\n", "line 2: anchors and aliases are not accepted", id="alias"),
        pytest.param("a: &x [1]\nb: [*x, *x]\n", "anchors and aliases", id="bomb"),
        pytest.param("a: 1\nb: 2\na: 3\n", "line 3: not valid YAML: key 'a' appears twice", id="double key"),
        pytest.param("o: {a: 1, a: 2}", "key 'a' appears twice", id="double key inside"),
        pytest.param("? [a, b]\n: 1\n", "a key must be plain text", id="list as key"),
        pytest.param("a: [1, 2", "line [12]: not valid YAML", id="unclosed"),
        pytest.param("a: b: c", "line 1: not valid YAML", id="two colons"),
        pytest.param("a: 2020-13-45", "not valid YAML", id="no such day"),
        pytest.param("a: \x07", "not valid YAML", id="control character"),
        pytest.param("a: " + "9" * 5000, "not valid YAML", id="number of 5000 digits"),
        pytest.param("a: 1\n---\nb: 2\n", "not valid YAML", id="two documents"),
        pytest.param(b"a: \xff\xfe", "expected UTF-8 text, found byte 0xff", id="not UTF-8"),
    ],
)
def test_bad_yaml(tmp_path: Path, content: bytes | str, complaint: str) -> None:
    assert_match(complaint, refused(tmp_path / "in.yaml", content))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param('{"a": NaN}', "NaN is not a number JSON allows", id="NaN"),
        pytest.param('{"a": Infinity}', "Infinity is not a number JSON allows", id="Infinity"),
        pytest.param('{"a": -Infinity}', "-Infinity is not a number JSON allows", id="-Infinity"),
        pytest.param('{"a": 1, "a": 2}', "key 'a' appears twice in one mapping", id="double key"),
        pytest.param('{"a": 1,\n}', "line 2: not valid JSON", id="trailing comma"),
        pytest.param("", "line 1: not valid JSON", id="empty"),
        pytest.param("[" * 100_000, "nested deeper than 40 levels", id="deep"),
        pytest.param('{"a": ' + "9" * 5000 + "}", "not valid JSON", id="number of 5000 digits"),
        pytest.param(b'{"a": "\xff"}', "expected UTF-8 text, found byte 0xff", id="not UTF-8"),
    ],
)
def test_bad_json(tmp_path: Path, content: bytes | str, complaint: str) -> None:
    assert_match(complaint, refused(tmp_path / "in.json", content))


def assert_match(complaint: str, message: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        raise BadInputError(message)


def test_nesting_up_to_the_limit(tmp_path: Path) -> None:
    fine = tmp_path / "fine.yaml"
    fine.write_text("[" * DEEPEST_NESTING + "]" * DEEPEST_NESTING)
    assert read_document(fine)
    deep = "[" * (DEEPEST_NESTING + 1) + "]" * (DEEPEST_NESTING + 1)
    assert f"nested deeper than {DEEPEST_NESTING} levels" in refused(tmp_path / "deep.yaml", deep)
    assert "nested deeper" in refused(tmp_path / "deeper.yaml", "{a: " * 100_000)


@pytest.mark.parametrize("name", ["huge.yaml", "huge.json", "huge.csv"])
def test_files_above_the_limit(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)  # sparse: takes no room
    with pytest.raises(BadInputError, match=f"{name}: larger than the limit of 32 MB"):
        read_text(path)


def test_a_file_just_at_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE)
    assert len(read_text(path)) == LARGEST_FILE


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nowhere.yaml: cannot be read: No such file"):
        read_document(tmp_path / "nowhere.yaml")


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read: Is a directory"):
        read_document(tmp_path)


def test_a_path_that_cannot_be_one(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        read_document(tmp_path / "a\0b.yaml")
    with pytest.raises(BadInputError, match="cannot be read: File name too long"):
        read_document(tmp_path / ("a" * 5000))


def test_written_files_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_text(path, "first")
    first = path.stat().st_ino
    with path.open() as reader:  # who opened the file before still reads the whole old one
        write_text(path, "second")
        assert reader.read() == "first"
        assert path.stat().st_ino != first
    write_text(path, "zweiter Ölstand")
    assert path.read_text("utf-8") == "zweiter Ölstand"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")

    def fail() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("mask", "kept", "asked_for"), [(0o022, 0o600, 0o644), (0o000, 0o600, 0o666)])
def test_the_umask_says_who_reads_what_a_user_asked_for(tmp_path: Path, mask: int, kept: int, asked_for: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "kept", "")
        write_output(tmp_path / "asked-for", "")
        private_folder(tmp_path / "a" / "b")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == kept
    assert (tmp_path / "asked-for").stat().st_mode & 0o777 == asked_for
    assert [folder.stat().st_mode & 0o777 for folder in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]


def test_what_is_written_is_on_the_disk_before_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real_fsync(handle)

    def replace(source: Path, target: Path) -> Path:
        steps.append("rename")
        return real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_text(path, "kept")
    assert steps == ["file", "rename", "folder"]


def test_special_files_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(BadInputError, match=r"pipe\.json: cannot be read: not a regular file"):
        read_document(tmp_path / "pipe.json")
    with pytest.raises(BadInputError, match="zero: cannot be read: not a regular file"):
        read_text(Path("/dev/zero"))


def test_many_keys_are_checked_in_the_time_of_one_look() -> None:
    # twice as many keys must not take four times as long: a million were 3 hours when every key was counted
    keys = ",".join(f'"k{number}":1' for number in range(1_000_000))
    with pytest.raises(BadInputError, match="key 'k7' appears twice"):
        parse_json(f'{{{keys},"k7":2}}', "p.json")


@pytest.mark.parametrize("text", [r'{"\ud800": 1}', r'{"a": ["\udfff"]}', r'["a\ud800b"]'])
def test_half_characters_are_not_text(text: str) -> None:
    with pytest.raises(BadInputError, match="half a character"):
        parse_json(text, "p.json")
    with pytest.raises(BadInputError):
        parse_yaml(text, "p.yaml")


def test_both_halves_of_a_character_are_one() -> None:
    assert parse_json(r'["\ud83d\ude00"]', "p.json") == ["\U0001f600"]


def test_large_yaml_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(BadInputError, match="larger than the limit of 2 MB for YAML; write it as JSON"):
        parse_yaml("a" * (LARGEST_YAML + 1), "p.yaml")


def test_a_temporary_folder_is_private_and_ends_with_its_block(temporary: Path) -> None:
    with temporary_folder("test") as folder:
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
        assert sweep_temporary_folders() == []
        assert folder.is_dir()
    assert list(temporary.iterdir()) == []


def test_folders_of_killed_processes_are_swept(temporary: Path) -> None:
    code = (
        "from penstock.base.files import temporary_folder\n"
        "with temporary_folder('t') as f: print(f, flush=True); input()"
    )
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        assert sweep_temporary_folders() == []
        process.kill()
        process.wait()
        assert left.is_dir()
    somebody_elses = temporary / "penstock-not-ours"
    somebody_elses.mkdir()
    assert sweep_temporary_folders() == [left]
    assert list(temporary.iterdir()) == [somebody_elses]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_writing_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"out.json: cannot be written: folder .* is not there"):
        write_text(tmp_path / "none" / "out.json", "")


def test_writing_over_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out.json"
    folder.mkdir()
    with pytest.raises(BadInputError, match="cannot be written: not a regular file"):
        write_text(folder, "")
    assert list(tmp_path.iterdir()) == [folder]
