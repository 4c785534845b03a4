"""Files made wrong: in their values, in their shape, and in their bytes. All of it follows from the seed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

BIDI = "\u202e\u2066\u200f"
NASTY_TEXTS = (
    "",
    " ",
    "\x1b[31m",
    "\x7f\x9b2J",
    BIDI,
    "\ud800",
    "a" * 10_000,
    "../../etc/passwd",
    "a/b",
    "-1",
    "nan",
    "none",
    "\n",
    "{}",
    "\N{GREEK SMALL LETTER ALPHA}\u0301",
)
NASTY_NUMBERS = (
    *(0, -0.0, -1, 1, 2, 0.1, 1e-9, 1e-300, 5e-324, 1e16, 1e300, 1.7e308, -1e308, 2**31, 2**63, 10**30, 10**400),
    *(float("nan"), float("inf"), float("-inf")),
)
NASTY_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": {}}, [None], {"a": {"b": {"c": []}}})

Path = tuple[str | int, ...]


def paths(document: Any, at: Path = ()) -> list[Path]:
    """Of everything in a document, itself first."""
    found = [at]
    if isinstance(document, dict):
        for key, value in document.items():
            found += paths(value, (*at, key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            found += paths(value, (*at, number))
    return found


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def replaced(document: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    at(document, path[:-1])[path[-1]] = value
    return document


def nasty(draw: Random) -> Any:
    kind = draw.random()
    if kind < 0.5:
        return draw.choice(NASTY_NUMBERS)
    return draw.choice(NASTY_TEXTS) if kind < 0.8 else copy.deepcopy(draw.choice(NASTY_OTHERS))


def _put_something_nasty(draw: Random, document: Any) -> Any:
    return replaced(document, draw.choice(paths(document)), nasty(draw))


def _spoil_a_number(draw: Random, document: Any) -> Any:
    numbers = [path for path in paths(document) if isinstance(at(document, path), int | float)]
    if not numbers:
        return document
    path = draw.choice(numbers)
    value = max(-1e300, min(1e300, at(document, path)))
    factor = 10.0 ** draw.choice((-300, -20, -9, -2, -1, 1, 2, 3, 6, 9, 20, 150, 300))
    spoiled = draw.choice((value * factor, -value, value + 1e-9, value - 1, int(min(1e18, max(-1e18, value * factor)))))
    return replaced(document, path, spoiled)


def _spoil_a_text(draw: Random, document: Any) -> Any:
    texts = [path for path in paths(document) if isinstance(at(document, path), str)]
    if not texts:
        return document
    path = draw.choice(texts)
    value: str = at(document, path)
    cut = draw.randrange(len(value) + 1)
    other = str(at(document, draw.choice(texts)))
    spoiled = draw.choice((other, value[:cut] + draw.choice(NASTY_TEXTS[:6]) + value[cut:], value[:cut], value * 2))
    return replaced(document, path, spoiled)


def _rename_a_key(draw: Random, document: Any) -> Any:
    tables = [path for path in paths(document) if isinstance(at(document, path), dict) and at(document, path)]
    if not tables:
        return document
    table = at(document, draw.choice(tables))
    key = draw.choice(list(table))
    new = draw.choice((*NASTY_TEXTS, key + "x", key[:-1], *table))
    value = table.pop(key)
    table[new] = value
    return document


def _remove(draw: Random, document: Any) -> Any:
    path = draw.choice(paths(document))
    if path:
        del at(document, path[:-1])[path[-1]]
    return document


def _repeat_an_entry(draw: Random, document: Any) -> Any:
    lists = [path for path in paths(document) if isinstance(at(document, path), list) and at(document, path)]
    if not lists:
        return document
    entries = at(document, draw.choice(lists))
    entries.extend(copy.deepcopy(draw.choice(entries)) for _ in range(draw.choice((1, 1, 2, 30))))
    return document


def _move_a_part(draw: Random, document: Any) -> Any:
    """A part of the document in the place of another."""
    known = paths(document)
    return replaced(document, draw.choice(known), copy.deepcopy(at(document, draw.choice(known))))


DOCUMENT_MUTATIONS: tuple[Callable[[Random, Any], Any], ...] = (
    _put_something_nasty,
    _put_something_nasty,
    _spoil_a_number,
    _spoil_a_number,
    _spoil_a_text,
    _rename_a_key,
    _remove,
    _repeat_an_entry,
    _move_a_part,
)


def spoiled_bytes(draw: Random, content: bytes, others: list[bytes]) -> bytes:
    """Truncated, overwritten, repeated, emptied, or another file altogether."""
    start, end = sorted((draw.randrange(len(content) + 1), draw.randrange(len(content) + 1)))
    piece = draw.choice(
        (b"\x00", b"\xff\xfe", b"\x1b]0;x\x07", b"{", b"]", b"\n- ", b"!!python/name:os.system", b"&a *a")
    )
    return draw.choice(
        (
            b"",
            content[:start],
            content[:start] + content[end:],
            content[:start] + piece + content[start:],
            content[:start] + draw.randbytes(3) + content[start + 3 :],
            content[:end] + content[start:],
            b"\xef\xbb\xbf" + content,
            draw.choice(others),
        )
    )


def dump(document: Any, *, as_json: bool) -> bytes:
    if as_json:
        return json.dumps(document).encode()
    try:
        return yaml.safe_dump(document, sort_keys=False).encode("utf-8", "surrogatepass")
    except ValueError:  # Python writes no whole number of hundreds of digits for YAML
        return json.dumps(document).encode()


def mutated(draw: Random, content: bytes, *, as_json: bool | None, others: list[bytes]) -> bytes:
    """`as_json` is None for what is neither JSON nor YAML: only its bytes can be spoiled."""
    if as_json is None or draw.random() < 0.2:
        return spoiled_bytes(draw, content, others)
    document = yaml.safe_load(content) if not as_json else json.loads(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        document = draw.choice(DOCUMENT_MUTATIONS)(draw, document)
    return dump(document, as_json=as_json)
