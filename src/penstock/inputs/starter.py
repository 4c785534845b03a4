"""The starter project of `penstock init`: a pipeline with code of its own, data for it, and the commands to try."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError
from penstock.base.files import write_output

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE_ORDERS = 500_000
DATA_FILES = 100
"""As orders come in: a file of them now and then. A batch of the pipeline takes two."""
USERS = ("ada", "ben", "cy", "dee", "eve")


def sample_orders(count: int) -> str:
    """JSON lines, the same every time; every tenth order is a test."""
    dice = np.random.default_rng(7)
    users, cents = dice.choice(USERS, size=count).tolist(), dice.integers(100, 50_000, size=count).tolist()
    currencies = dice.choice(("EUR", "USD"), size=count).tolist()
    tests = ("false",) * 9 + ("true",)
    return "".join(
        f'{{"user": "{user}", "price": "{price / 100:.2f} {currency}", "test": {tests[number % 10]}}}\n'
        for number, (user, price, currency) in enumerate(zip(users, cents, currencies, strict=True))
    )


def data_files() -> dict[str, str]:
    """The sample orders by the file each is in."""
    lines = sample_orders(SAMPLE_ORDERS).splitlines(keepends=True)
    each = SAMPLE_ORDERS // DATA_FILES
    return {f"data/orders-{n:03}.jsonl": "".join(lines[n * each : (n + 1) * each]) for n in range(DATA_FILES)}


def write_starter(folder: Path) -> list[Path]:
    """The starter files in a new or empty folder; nothing is written where anything is in the way."""
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"{folder}: expected a folder, found a file")
    files = data_files()
    for template in (resources.files("penstock.inputs") / "starter_files").iterdir():
        if template.is_file():
            files[template.name] = template.read_text("utf-8")
    for name in sorted(files):
        if (folder / name).exists():
            raise BadInputError(f"{folder / name}: already there; expected a folder without it")
    try:
        (folder / "data").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{folder}: cannot be created: {error.strerror}") from error
    for name, text in files.items():
        write_output(folder / name, text)
    return [folder / name for name in sorted(files)]
