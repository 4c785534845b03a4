"""Whatever stands in a file or behind an option, a command ends with 0, 1 or 2: one line, no traceback, no half file.

`pytest tests/fuzz --fuzz 10000` makes so many calls; the seed says which, so a failure comes back with its number:
`pytest tests/fuzz --fuzz-only 4711`.
"""

from __future__ import annotations

import shutil
import string
from pathlib import Path
from random import Random

import pytest
from calls import CALLS, DRAWN, drawn
from mutations import mutated
from seeds import Seed
from trying import faults

from penstock.cli.main import run

CHUNKS = 24
"""Parts that may run beside each other."""

ALONGSIDE = {
    "run-folder": ("conductor",),
    "fused-folder": ("fused-state", "elsewhere"),
    "checkpoint-folder": tuple(f"offsets-{number}" for number in (0, 1, 3, 4, 5)),
}
"""Files that stand in the same folder."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "numbers" not in metafunc.fixturenames:
        return
    only = metafunc.config.getoption("--fuzz-only")
    if only is not None:
        metafunc.parametrize("numbers", [range(only, only + 1)], ids=[str(only)])
        return
    total = metafunc.config.getoption("--fuzz")
    chunks = [range(first, total, CHUNKS) for first in range(CHUNKS)]
    metafunc.parametrize("numbers", chunks, ids=[f"chunk-{first}" for first in range(CHUNKS)])


def words_of(call: str, draw: Random, seeds: dict[str, Seed], folder: Path, *, spoiled: bool = True) -> list[str]:
    """The words of a call, with its files written into the folder: usually one of them is wrong."""
    text = call
    while names := [name for _, name, _, _ in string.Formatter().parse(text) if name in DRAWN]:
        text = text.replace(f"{{{names[0]}}}", drawn(draw, names[0]) if spoiled else DRAWN[names[0]][0][1], 1)
    used = [name for _, name, _, _ in string.Formatter().parse(text) if name in seeds]
    used += [beside for name in used for beside in ALONGSIDE.get(name, ())]
    wrong = {draw.choice(used)} if spoiled and used and draw.random() < 0.9 else set()
    others = [seed.content for seed in seeds.values()]
    places = {"out": str(folder / "out" / "made"), "out-2": str(folder / "out" / "more")}
    (folder / "out").mkdir()
    for name in used:
        seed = seeds[name]
        path = folder / "in" / seed.path
        path.parent.mkdir(parents=True, exist_ok=True)
        content = seed.content
        path.write_bytes(mutated(draw, content, as_json=seed.as_json, others=others) if name in wrong else content)
        places[name] = str(path.parent if name.endswith("-folder") else path)
    return [word.format(**places) for word in text.partition(" | ")[0].split()]


def test_nothing_in_a_file_or_option_breaks_a_command(
    numbers: range,
    seeds: dict[str, Seed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "none"))
    broken = []
    for number in numbers:
        draw = Random(number)  # noqa: S311 - it draws no secrets
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.setenv("PENSTOCK_RUNS", str(folder / "in" / "runs"))
        words = words_of(CALLS[number % len(CALLS)], draw, seeds, folder)
        if complaints := faults(words, folder, capsys):
            broken.append(f"--fuzz-only {number}: penstock {' '.join(words)}\n" + "\n".join(complaints))
        else:
            shutil.rmtree(folder)
    assert not broken, f"{len(broken)} calls:\n" + "\n\n".join(broken)


@pytest.mark.parametrize("call", CALLS)
def test_the_calls_are_good_before_their_files_are_spoiled(
    call: str, seeds: dict[str, Seed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "none"))
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "in" / "runs"))
    code = run(words_of(call, Random(0), seeds, tmp_path, spoiled=False))  # noqa: S311 - nor here
    assert code in ({1, 2} if call.startswith(("drain", "rescale")) else {0, 1})  # nobody conducts these runs
    if call.startswith("cluster status"):
        assert code == 1  # nothing runs there
