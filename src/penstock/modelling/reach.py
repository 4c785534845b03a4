"""What code given in Python is and refers to, as text that is the same in every process.

Things are numbered in the order they are met and each is said once, so that rings of them come to an end; text never
holds addresses, nor the order of a set. What is looked into: functions with their closures, defaults and what they
use; methods with what they are bound to; wrapped functions; containers and arrays; functions, classes and instances of
the user's own modules: those of no library, and of the package the code is in, wherever that is installed. Of things of
libraries only their type counts: what they keep may differ between processes.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections import deque
from itertools import islice
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import TYPE_CHECKING, NamedTuple

from penstock.dataflow.logic import Logic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_THINGS = 20_000
"""That are looked into; of those met later only the type counts."""
MOST_ITEMS = 10_000
"""Of a container; of a longer one the first so many and its length count."""

_PLAIN = (int, float, complex, str, bytes, NoneType)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
LIBRARIES = ("site-packages", "dist-packages")
"""Folders in which nothing is the user's own."""


class _Look(NamedTuple):
    """What is said of a thing, and what it refers to."""

    words: Iterable[str]
    refers_to: Iterable[object]


def text_of_code(code: Logic, *, as_before: bool = False) -> Iterator[str]:
    """Of its functions and all they refer to. `as_before`: as for models of before, without other modules."""
    function = code.function.func if isinstance(code.function, functools.partial) else code.function
    home = _module_of(function).partition(".")[0]
    numbers: dict[int, int] = {}
    things: list[object] = []  # kept: the number of a thing that is gone is given to another

    def word(value: object) -> str:
        if isinstance(value, _PLAIN):
            return repr(value)
        if id(value) not in numbers:
            if len(things) == MOST_THINGS:
                return _type_name(value)
            numbers[id(value)] = len(things)
            things.append(value)
        return f"#{numbers[id(value)]}"

    word(code)
    for thing in things:  # it grows meanwhile
        look = _look(thing, home, as_before=as_before)
        yield " ".join((*look.words, *map(word, look.refers_to)))


def _look(thing: object, home: str, *, as_before: bool) -> _Look:  # noqa: PLR0911 - one answer for every kind of thing
    kind = _type_name(thing)
    if isinstance(thing, Logic):
        return _Look([f"{thing.per} {thing.schema}"], [thing.function, thing.open, thing.close])
    if isinstance(thing, functools.partial):
        return _Look([kind], [thing.func, thing.args, thing.keywords])
    if isinstance(thing, MethodType):
        return _Look([kind], [thing.__func__, thing.__self__])
    if isinstance(thing, BuiltinMethodType):
        bound_to = thing.__self__
        return _Look([kind, thing.__qualname__], [] if isinstance(bound_to, ModuleType) else [bound_to])
    if isinstance(thing, FunctionType):
        return _Look(_of_code(thing.__code__), _used_by(thing, None if as_before else home))
    if isinstance(thing, type):
        return _Look([thing.__module__, thing.__qualname__], _members(thing) if _is_own(thing, home) else [])
    if isinstance(thing, _CONTAINERS):
        return _Look([kind, str(len(thing))], _items(thing))
    if (content := _content(thing)) is not None:
        return _Look([kind, content], [])
    if isinstance(thing, staticmethod | classmethod):
        return _Look([kind], [thing.__func__])
    if isinstance(thing, property):
        return _Look([kind], [thing.fget, thing.fset])
    if isinstance(thing, functools.cached_property):
        return _Look([kind], [thing.func])
    if _is_own(type(thing), home):
        return _Look([kind], [type(thing), *_attributes(thing)])
    return _Look([kind], [getattr(thing, "__dict__", {}).get("__wrapped__")])  # as functools.lru_cache leaves it


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _module_of(thing: object) -> str:
    """That a function, a class, or the class of an instance is of; or the name of a module."""
    name = getattr(thing, "__name__" if isinstance(thing, ModuleType) else "__module__", None)
    return name if isinstance(name, str) else ""


def _is_own(thing: object, home: str) -> bool:
    module = _module_of(thing)
    return bool(module) and is_of_user(module, getattr(sys.modules.get(module), "__file__", None) or "", home)


def is_of_user(module: str, file: str, home: str) -> bool:
    """Whether a module is the user's own: of no library, Python's or another's, unless the code itself is of that:
    `home` is the package it is in."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "penstock":
        return False
    return top == home or not any(folder in file for folder in LIBRARIES)


def _of_code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _used_by(function: FunctionType, home: str | None) -> Iterator[object]:
    """Defaults, closure, and what it names of its module: data, and code and classes of the user's own modules, or,
    where `home` is not given, of its own."""
    yield from function.__defaults__ or ()
    yield function.__kwdefaults__
    for cell in function.__closure__ or ():
        yield _kept_in(cell)
    names = list(_names(function.__code__))
    for name in names:
        used = function.__globals__.get(name)
        is_data = isinstance(used, (*_PLAIN, *_CONTAINERS)) or _content(used) is not None
        if home is None:
            if is_data or getattr(used, "__module__", None) == function.__module__:
                yield used
        elif isinstance(used, ModuleType):
            yield from _of_module(used, names, home)
        elif is_data or isinstance(used, Logic) or _is_own(used, home):
            yield used


def _of_module(module: ModuleType, names: list[str], home: str) -> Iterator[object]:
    """What is used of a module of the user's: what it has by a name that stands in the code."""
    waiting, seen = [module], set[int]()
    while waiting:
        inner = waiting.pop()
        if id(inner) in seen or not _is_own(inner, home):
            continue
        seen.add(id(inner))
        for name in names:
            used = vars(inner).get(name)
            if isinstance(used, ModuleType):
                waiting.append(used)
            elif used is not None:
                yield used


def _kept_in(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put there yet
        return "an empty cell"


def _members(kind: type) -> Iterator[object]:
    """Of a class: its bases, its methods, and what it keeps for all instances."""
    yield from kind.__bases__
    for name, member in sorted(vars(kind).items()):
        is_ours = not name.startswith(("__", "_abc_"))
        if is_ours or isinstance(member, FunctionType):
            yield from (name, member)


def _attributes(thing: object) -> Iterator[object]:
    """What an instance keeps, by name."""
    kept = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"} and hasattr(thing, name):
                kept[name] = getattr(thing, name)
    yield kept


def _items(container: object) -> Iterator[object]:
    """Of a list and the like in their order; of sets, and by the keys of dicts, in one that every process has."""
    if isinstance(container, dict):
        for key in islice(sorted(container, key=_place), MOST_ITEMS):
            yield from (key, container[key])
    elif isinstance(container, set | frozenset):
        yield from islice(sorted(container, key=_place), MOST_ITEMS)
    elif isinstance(container, list | tuple | deque):
        yield from islice(container, MOST_ITEMS)


def _place(value: object) -> tuple[str, str]:
    is_plain = isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value))
    return _type_name(value), repr(value) if is_plain else str(getattr(value, "__qualname__", ""))


def _content(value: object) -> str | None:
    """Of an array its bytes, shortened; None: it is none, or one of objects, whose bytes are addresses."""
    try:
        with memoryview(value) as content:  # type: ignore[arg-type] # whether it can be is the question
            if "O" in content.format:
                return None
            whole = content if content.c_contiguous else content.tobytes()
            return f"{content.format} {content.shape} {hashlib.sha256(whole).hexdigest()}"
    except (TypeError, ValueError, BufferError):
        return None
