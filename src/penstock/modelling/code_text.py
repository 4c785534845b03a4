"""Code given in Python, and all it refers to, as text that is the same in every process.

Objects are numbered in the order they are met and each is written once, so that cycles end; text never holds addresses,
nor the order of a set. Included are: functions with their closures, defaults and the names they use; methods with their
objects; wrapped functions; containers and arrays; functions, classes and instances of the user's own modules: those of
no library, and of the package the code is in, wherever that is installed. Only the type of objects of libraries counts:
their contents may differ between processes.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections import deque
from functools import lru_cache
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import TYPE_CHECKING, NamedTuple

from penstock.dataflow.logic import Logic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from importlib.machinery import ModuleSpec


MOST_THINGS = 20_000
"""That are looked into; of those met later only the type counts."""
MOST_ITEMS = 10_000
"""Max items of a container; of a longer one this number of its first items and its length count."""

_PLAIN = (int, float, complex, str, bytes, NoneType)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
LIBRARIES = ("site-packages", "dist-packages")
"""Folders in which nothing is the user's own."""


class _Look(NamedTuple):
    """Description of an object, and the objects it refers to."""

    words: Iterable[str]
    refers_to: Iterable[object]


def text_of_code(code: Logic, *, as_before: bool = False) -> Iterator[str]:
    """Yield the text of its functions and all they refer to. `as_before`: as for models of earlier versions, without
    other modules."""
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
    """Yield defaults, closure, and the objects it names in its module: data, and code and classes of the user's own
    modules, or, without `home`, of its own."""
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
    """Yield the objects used of a module of the user's: those with a name that occurs in the code."""
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
    """Yield the bases of a class, its methods, and its class attributes."""
    yield from kind.__bases__
    for name, member in sorted(vars(kind).items()):
        is_ours = not name.startswith(("__", "_abc_"))
        if is_ours or isinstance(member, FunctionType):
            yield from (name, member)


def _attributes(thing: object) -> Iterator[object]:
    """Yield the attributes of an instance, by name."""
    kept = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"} and hasattr(thing, name):
                kept[name] = getattr(thing, name)
    yield kept


def _items(container: object) -> Iterator[object]:
    """Yield the items of a list and the like in their order; of sets, and of dicts by their keys, in an order that is
    the same in every process."""
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
    """Return the bytes of an array, shortened; None if it is none, or one of objects, whose bytes are addresses."""
    try:
        with memoryview(value) as content:  # type: ignore[arg-type] # whether it can be is the question
            if "O" in content.format:
                return None
            whole = content if content.c_contiguous else content.tobytes()
            return f"{content.format} {content.shape} {hashlib.sha256(whole).hexdigest()}"
    except (TypeError, ValueError, BufferError):
        return None


# Code at `module:attribute` and everything it refers to, as text: its files are read, and nothing is imported.
#
# Included is every statement of the module that makes or changes the attribute, those that make or change the names
# they refer to, and the same in the user's own modules they import from: those of no library, and of the package the
# code is in. Of libraries only the imports count. Comments, layout, and code that runs only as a script do not.


MOST_MODULES = 200
"""Max modules read for one piece of code; of further ones only the import counts."""
MOST_BYTES = 4_000_000
"""Max bytes of a module; a larger one is not read."""

UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError, MemoryError)
"""Exceptions of reading a file as Python; the last two if expressions are nested deeper than Python follows."""

_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OTHER_SCOPE = (*_DEFINITION, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class _Imported(NamedTuple):
    """An imported name: a module, or an attribute of it."""

    module: str
    attribute: str | None


class _Module(NamedTuple):
    """The names that a file defines."""

    made_by: dict[str, list[ast.stmt]]
    """The statements that make or change each."""
    imports: dict[str, list[_Imported]]
    """Anywhere in the file: functions import too."""
    all_of: list[str]
    """Modules of which all names are imported."""


def text_of_source(address: str, folders: Sequence[str]) -> str | None:
    """Return the text of the code at an address; None if it cannot be read. `folders`: places of modules."""
    module, _, attribute = address.partition(":")
    reading = _Reading(module, folders)
    try:
        reading.follow(module, attribute)
    except RecursionError:  # writing out what could just be read
        return None
    return reading.text() if reading.reached else None


def file_of(module: str, folders: Sequence[str]) -> Path | None:
    """Found without importing it."""
    return _Reading(module, folders).file_of(module)


class _Reading:
    """One piece of code under way: the modules and names reached so far."""

    def __init__(self, home: str, folders: Sequence[str]) -> None:
        self._home = home
        self._folders = folders
        self._specs: dict[str, ModuleSpec | None] = {}
        self._modules: dict[str, _Module] = {}
        self._waiting: list[tuple[str, tuple[str, ...]]] = []
        self.reached: dict[tuple[str, str], str] = {}

    def text(self) -> str:
        return "\n".join(f"{module}:{name}\n{text}" for (module, name), text in sorted(self.reached.items()))

    def follow(self, module: str, attribute: str) -> None:
        seen = set()
        self._waiting = [(module, (attribute,))]
        while self._waiting:
            wanted = self._waiting.pop()
            if wanted not in seen:
                seen.add(wanted)
                self._reach(*wanted)

    def _reach(self, module: str, names: tuple[str, ...]) -> None:
        """`names`: an attribute of the module, one of that, and so on; none: all of the module."""
        parsed = self._module(module)
        if not names:
            self._waiting += [(module, (name,)) for name in ({**parsed.made_by, **parsed.imports} if parsed else ())]
            return
        name, *rest = names
        statements = parsed.made_by.get(name, []) if parsed else []
        imports = parsed.imports.get(name, []) if parsed else []
        for target in imports:
            self._waiting.append((target.module, (*filter(None, [target.attribute]), *rest)))
        if (statements or imports) and (module, name) not in self.reached:
            bound = sorted(f"{target.module}:{target.attribute}" for target in imports)
            self.reached[module, name] = "\n".join([*bound, *map(ast.unparse, statements)])
            self._waiting += [(module, chain) for statement in statements for chain in _chains(statement)]
        elif parsed and not statements and not imports:
            self._waiting += [(other, names) for other in parsed.all_of]
        if not statements and not imports and self._is_package(module):
            self._waiting.append((f"{module}.{name}", tuple(rest)))

    def _module(self, name: str) -> _Module | None:
        """None: it is no file of the user's, or one too many."""
        if name not in self._modules:
            file = self.file_of(name)
            if file is None or len(self._modules) == MOST_MODULES:
                return None
            self._modules[name] = _parsed(file, name, is_package=self._is_package(name))
        return self._modules[name]

    def file_of(self, module: str) -> Path | None:
        spec = self._spec(module)
        origin = None if spec is None else spec.origin
        return Path(origin) if origin is not None and origin.endswith(".py") else None

    def _is_package(self, module: str) -> bool:
        spec = self._spec(module)
        return spec is not None and spec.submodule_search_locations is not None

    def _spec(self, module: str) -> ModuleSpec | None:
        """Return the place of a module of the user's, without importing it or its packages."""
        if module not in self._specs:
            package, _, name = module.rpartition(".")
            parent = self._spec(package) if package else None
            inside = None if parent is None else parent.submodule_search_locations
            places = inside if package else self._folders
            spec = PathFinder.find_spec(module, places) if places is not None and name.isidentifier() else None
            self._specs[module] = spec if spec is None or self._is_wanted(module, spec) else None
        return self._specs[module]

    def _is_wanted(self, module: str, spec: ModuleSpec) -> bool:
        leads_home = f"{self._home}.".startswith(f"{module}.")
        file = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
        return leads_home or is_of_user(module, file, self._home.partition(".")[0])


def _parsed(file: Path, module: str, *, is_package: bool) -> _Module:
    """Return the names of a module; none if its file cannot be read."""
    try:
        status = file.stat()
        if status.st_size <= MOST_BYTES:
            return _parsed_version(file, module, is_package, (status.st_mtime_ns, status.st_size))
    except UNREADABLE:
        pass
    return _Module({}, {}, [])


@lru_cache(maxsize=64)
def _parsed_version(file: Path, module: str, is_package: bool, _version: tuple[int, int]) -> _Module:
    """A pipeline may have many operators of one module."""
    tree = ast.parse(file.read_bytes())
    parsed = _Module({}, {}, [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = _Imported(alias.name if alias.asname else alias.name.partition(".")[0], None)
                parsed.imports.setdefault(alias.asname or bound.module, []).append(bound)
        elif isinstance(node, ast.ImportFrom):
            origin = _imported_from(node, module, is_package=is_package)
            for alias in node.names:
                if alias.name == "*":
                    parsed.all_of.append(origin)
                else:
                    bound = _Imported(origin, alias.name)
                    parsed.imports.setdefault(alias.asname or alias.name, []).append(bound)
        elif isinstance(node, _DEFINITION):
            node.decorator_list = [made for made in node.decorator_list if not _adds_to_a_pipeline(made)]
    functions = {statement.name for statement in tree.body if isinstance(statement, _DEFINITION)}
    for statement in tree.body:
        if not _is_only_a_script(statement):
            for name in {*_stored(statement), *(set(_given_to_calls(statement)) - functions)}:
                parsed.made_by.setdefault(name, []).append(statement)
    return parsed


def _imported_from(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    upwards = node.level - 1 if is_package else node.level
    return ".".join([*parts[: len(parts) - upwards], *filter(None, [node.module])])


def _adds_to_a_pipeline(decorator: ast.expr) -> bool:
    """Return whether a decorator is like `@orders.operator(reads="events", threads=8)`: its options for the operator
    are not code."""
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr == "operator"
        and any(keyword.arg == "reads" for keyword in decorator.keywords)
    )


def _is_only_a_script(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"


def _in_its_scope(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and all in it, without the contents of functions and classes."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _OTHER_SCOPE):
            waiting += ast.iter_child_nodes(node)


def _stored(statement: ast.stmt) -> Iterator[str]:
    """The names it makes, or of which it changes a part."""
    for node in _in_its_scope(statement):
        if isinstance(node, _DEFINITION):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from _root(node)
    for node in ast.walk(statement):
        if isinstance(node, ast.Global):
            yield from node.names


def _given_to_calls(statement: ast.stmt) -> Iterator[str]:
    """The names a call whose answer is not kept may change: `TABLE.update(more)`, `shuffle(TABLE)`."""
    for node in _in_its_scope(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute):
                yield from _root(call.func)
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                yield from _root(argument)


def _root(node: ast.expr) -> Iterator[str]:
    """TABLE of `TABLE["a"].b`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _chains(statement: ast.AST) -> set[tuple[str, ...]]:
    """All names in it, each with the attributes asked of it: `lib.tables.price` is one of three."""
    chains = set()
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        names: list[str] = []
        inner = node
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            chains.add((inner.id, *reversed(names)))
        else:
            waiting += ast.iter_child_nodes(inner)
    return chains
