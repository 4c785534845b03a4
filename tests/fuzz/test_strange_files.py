"""Files that no mutation of a good one makes: other encodings, depths, sizes and kinds of file, for every file that a
command reads or looks for by itself."""

from __future__ import annotations

import os
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from calls import CALLS, DRAWN
from seeds import Seed
from trying import faults

DEEP = 3_000
MANY = 4_000

CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\t\n",
    "nul": b"\x00" * 64,
    "utf-16": '{"name": "x"}'.encode("utf-16"),
    "utf-32": "name: x\n".encode("utf-32"),
    "latin-1": b'{"name": "caf\xe9"}',
    "mark alone": b"\xef\xbb\xbf",
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep mappings": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep by dashes": b"- " * DEEP,
    "deep by questions": b"? " * DEEP,
    "large exponent": b'{"name": 1e999999999}',
    "many digits": b'{"name": ' + b"9" * 100_000 + b"}",
    "not a number": b'{"name": NaN, "operators": -Infinity}',
    "not a number in YAML": b"name: .nan\noperators: -.inf\n",
    "sixties": b"name: 190:20:30\noperators: 0o777\nstreams: 0b1\n",
    "a date": b"name: 2001-12-14t21:59:43.10-05:00\noperators: 2002-13-45\n",
    "merged": b"a: &a {x: 1}\nb: {<<: *a}\n",
    "merged with nothing": b"<<: {name: x}\noperators: {}\n",
    "many laughs": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "two documents": b"name: x\n---\nname: y\n",
    "a directive": b"%YAML 9.9\n---\nname: x\n",
    "a key of lists": b"{[1, 2]: 3}",
    "many keys": b"{" + b",".join(b'"k%d": %d' % (number, number) for number in range(MANY)) + b"}",
    "the same key": b"{" + b",".join([b'"k": 1'] * MANY) + b"}",
    "a long line": b"x" * 3_000_000,
    "a half character": b'{"\\ud800": "\\udfff"}',
    "a terminal's commands": 'name: "\\e]0;owned\\a\\e[2J\u202e"\n\u202e: \x85\n'.encode(),
    "a table of nothing": b",,,\n,,,\n",
    "an open quote": b'model,threads\n"a,1\n',
    "an elf": b"\x7fELF\x02\x01\x01" + bytes(range(256)),
    "an archive": b"PK\x03\x04" + bytes(64),
    "a pickle": b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
}


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _links_in_a_ring(path: Path) -> None:
    path.symlink_to(path.with_name("ring"))
    path.with_name("ring").symlink_to(path)


def _nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def _never_ending(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _nothing(path: Path) -> None:
    path.symlink_to("/dev/null")


def _larger_than_the_disk(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


KINDS: dict[str, Callable[[Path], None]] = {
    "fifo": _fifo,
    "folder": _folder,
    "ring of links": _links_in_a_ring,
    "link to nowhere": _nowhere,
    "/dev/zero": _never_ending,
    "/dev/null": _nothing,
    "a terabyte of nothing": _larger_than_the_disk,
}

STATE = "state/controller/running.json"
CONTROLLER_CALLS = (
    *("list", "show x", "priority x 1", "pause x", "activate x", "kill x", "policy", "nodes", "decisions", "events"),
    *("logs x", "target x --rate 5", "submit linear --rate 5", "trigger list x", "down"),
)
"""Calls that look for a controller; a strange file stands where it would say its address."""
ALSO_READ = (
    *("run {pipeline} --rate 5 --seconds 1", "profile {pipeline} -o {out}.json", "submit {pipeline} --rate 5"),
    *("resume {run-folder}", "resume {fused-folder}", "resume {run-folder} --plan {plan}", "run {plan} --seconds 1"),
    *("run linear --rate 5 --seconds 1 --models {models}", "simulate {plan} --seconds 2 --load trace:{trace}"),
    "run linear --rate 5 --seconds 1 --secret-file {trace} --master spark://127.0.0.1:9",
)
"""Calls that would start Spark or ask a controller with a good file: here none is."""


def words_with(call: str, wrong: str, make: Callable[[Path], None], seeds: dict[str, Seed], folder: Path) -> list[str]:
    """Every file good but `wrong`."""
    text = call
    while names := [name for _, name, _, _ in string.Formatter().parse(text) if name in DRAWN]:
        text = text.replace(f"{{{names[0]}}}", DRAWN[names[0]][0][0], 1)
    places = {"out": str(folder / "out" / "made"), "out-2": str(folder / "out" / "more")}
    for name in files_of(call):
        path = folder / "in" / seeds[name].path
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == wrong:
            make(path)
        else:
            path.write_bytes(seeds[name].content)
        places[name] = str(path.parent if name.endswith("-folder") else path)
    return [word.format(**places) for word in text.partition(" | ")[0].split()]


def files_of(call: str) -> list[str]:
    """The files of a call; options that are drawn name none here."""
    return [
        name
        for _, name, _, _ in string.Formatter().parse(call)
        if name is not None and name not in DRAWN and not name.startswith("out")
    ]


def writes(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


STRANGE: dict[str, Callable[[Path], None]] = {**{name: writes(text) for name, text in CONTENTS.items()}, **KINDS}


@pytest.mark.parametrize("strange", STRANGE)
def test_no_strange_file_breaks_a_command(
    strange: str,
    seeds: dict[str, Seed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    broken = []
    # what a file holds is read by one reader for all commands; who opens it, and how, is each one's own
    of_every_command = strange in KINDS
    tried = {
        (name, of_every_command and call.split()[0]): (call, name)
        for call in (*CALLS, *ALSO_READ)
        for name in files_of(call)
    }
    for number, (call, wrong) in enumerate(tried.values()):
        folder = tmp_path / str(number)
        (folder / "out").mkdir(parents=True)
        monkeypatch.setenv("PENSTOCK_STATE", str(folder / "none"))
        monkeypatch.setenv("PENSTOCK_RUNS", str(folder / "in" / "runs"))
        words = words_with(call, wrong, STRANGE[strange], seeds, folder)
        broken += [f"penstock {' '.join(words)}: {complaint}" for complaint in faults(words, folder, capsys)]
    folder = tmp_path / "controller"
    (folder / "out").mkdir(parents=True)
    path = folder / STATE
    path.parent.mkdir(parents=True, mode=0o700)
    STRANGE[strange](path)
    monkeypatch.setenv("PENSTOCK_STATE", str(folder / "state"))
    for call in CONTROLLER_CALLS:
        words = call.split()
        broken += [f"penstock {call}: {complaint}" for complaint in faults(words, folder, capsys)]
    assert not broken, f"{len(broken)} calls:\n" + "\n\n".join(broken)
