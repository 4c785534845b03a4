"""Options of a run: each is declared once, in `RunConfig`.

Python keywords, options of the command line, fields of HTTP bodies, `run.json`, the driver's job file and the tables in
docs/options.md are derived from these declarations. Nothing here imports pydantic, numpy or Spark: `penstock --help`
reads the declarations.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from functools import cache
from os import PathLike, fspath
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from penstock.base.errors import BadInputError, nearest
from penstock.base.former_names import with_present_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.dataflow.load import Load

F = TypeVar("F", bound="Callable[..., Any]")

FUSED, PLACED, SIMULATED, AUTO = "fused", "placed", "simulated", "auto"
ENGINES = (FUSED, PLACED, SIMULATED)
SEARCH_SECONDS = 20.0
"""Seconds of each trial of a search for the highest rate, unless given."""
MAX_WARM_UP_SECONDS = 5.0
MIN_EXECUTOR_MB = 512
"""Spark starts no executor with less than 450."""


class Appears(Flag):
    """Places in which an option appears."""

    PYTHON = auto()
    """A keyword of `penstock.run` and `penstock.start`."""
    COMMAND = auto()
    """An option of `penstock run`."""
    RESUME = auto()
    """May be given anew to `penstock.resume` and `penstock runs resume`."""
    HTTP = auto()
    """A field of a submitted pipeline."""
    FILE = auto()
    """Kept in `run.json` and in a driver's job, so that another process can resume the run."""
    USER = PYTHON | COMMAND
    KEPT = USER | FILE
    SUBMITTED = KEPT | HTTP


@dataclass(frozen=True)
class Option:
    """The declaration of one option."""

    key: str
    """Name as a Python keyword and in JSON."""
    default: Any
    help: str
    kind: type
    """Type of a value that is not None: bool, int, float, str, tuple (of texts), dict (of texts) or object (any)."""
    appears: Appears
    engines: tuple[str, ...] = ENGINES
    unit: str = ""
    former: tuple[str, ...] = ()
    """Names that earlier versions used."""
    flag: str = ""
    """Name on the command line, if it is not that of the key."""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    is_path: bool = False
    takes: str = ""
    """Type of the Python keyword, if it takes more than the field holds."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "flag", self.flag or f"--{self.key.replace('_', '-')}")

    def read(self, value: Any) -> Any:
        """Return a value from Python, JSON or the command line as the field holds it, or raise ValueError with the
        reason. None stands for the default."""
        if value is None:
            return self.default
        if self.kind is object:
            return value
        if self.is_path and isinstance(value, PathLike):
            value = fspath(value)
        if self.kind is dict:
            return _texts_by_key(value)
        if self.kind is tuple:
            if isinstance(value, str) or not all(isinstance(it, str) for it in value):
                raise ValueError(f"expected a list of texts, found {value!r}")
            return tuple(value)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not self.kind and not (self.kind is str and isinstance(value, str)):
            raise ValueError(f"expected {_KIND_WORDS[self.kind]}, found {value!r}")
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"unknown {self.key} '{value}'; {nearest(str(value), self.choices)}")
            return str(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_range(value)
        return value

    def _check_range(self, value: float) -> None:
        low, high = self.minimum, self.maximum
        if math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high):
            return
        unit = f" {self.unit}" if self.unit else ""
        if low is not None and high is not None:
            expected = f"{low:g} to {high:g}{unit}"
        else:
            expected = f"a finite number of{unit}" if low is None else f"at least {low:g}{unit}"
        raise ValueError(f"expected {expected}, found {value:g}")


_KIND_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _texts_by_key(given: Any) -> dict[str, str]:
    """Return a mapping of texts; `KEY=VALUE` texts, as the command line has them, are taken too."""
    if isinstance(given, Mapping):
        return {str(key): _setting_text(value) for key, value in given.items()}
    pairs = {}
    for text in given:
        key, equals, value = str(text).partition("=")
        if not (key and equals):
            raise ValueError(f"expected KEY=VALUE, found '{text}'")
        pairs[key] = value
    return pairs


def _setting_text(value: Any) -> str:
    """Return a setting as Spark spells it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def option(default: Any, text: str, appears: Appears = Appears.KEPT, **more: Any) -> Any:
    """Declare an option of `RunConfig`. `text` is its help, the same in every place; `more` are fields of `Option`."""
    metadata = {"help": text, "appears": appears, **more}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The options of a run, in the order in which help texts and tables list them."""

    engine: str = option(
        FUSED,
        "fused: one Structured Streaming query. placed: every operator on the slot its plan names. auto: placed for a "
        "plan on a cluster, else fused.",
        Appears.SUBMITTED,
        choices=(AUTO, *ENGINES),
    )
    rate: float | str | Load | None = option(  # noqa: RUF009 - a field's declaration
        None,
        "Rows/s of every source: 100, steps:SECONDSxRATE,..., on-off:RATE,ON,OFF (seconds), or trace:FILE.csv "
        "(columns time, rate). Default: the rate of the plan, if one is run.",
        Appears.KEPT,
        unit="rows/s",
        metavar="RATE",
        takes="float | str | Load",
    )
    slots: int | None = option(
        None,
        "Slots; default: those of the plan, else one per core.",
        Appears.KEPT | Appears.RESUME,
        engines=(FUSED, SIMULATED),
        minimum=1,
    )
    seconds: float | None = option(
        None,
        "Seconds to run after the first batch; with --find-max, of each trial (20). Default: until Ctrl-C, which "
        "drains the run.",
        Appears.USER | Appears.RESUME,
        unit="s",
        minimum=0,
    )
    warm_up: float | None = option(
        None,
        "Seconds at the start that the report leaves out. Default: 5, or a quarter of the run if that is less.",
        Appears.USER | Appears.RESUME,
        unit="s",
        minimum=0,
    )
    until_end: bool = option(
        False,
        "Process the rows that the sources hold now, and end.",
        engines=(FUSED,),
    )
    find_max: bool = option(False, "Search for the highest stable rate.", Appears.USER)
    low: float | None = option(None, "With --find-max: a rate that is surely stable.", Appears.USER, unit="rows/s")
    high: float | None = option(None, "With --find-max: no rate above this.", Appears.USER, unit="rows/s")
    batch_interval_ms: int = option(
        100,
        "Milliseconds from one batch to the next, at least.",
        Appears.SUBMITTED,
        engines=(FUSED, SIMULATED),
        unit="ms",
        former=("interval_ms",),
        minimum=1,
    )
    audit: bool | None = option(
        None,
        "Look for every row in the output. Default: if the load generator emits them.",
        engines=(FUSED,),
    )
    dead_letters: str | None = option(
        None,
        "Folder for dead letters, as JSON lines.",
        Appears.SUBMITTED | Appears.RESUME,
        engines=(FUSED, PLACED),
        is_path=True,
    )
    max_dead_letter_ratio: float = option(
        0.01,
        "Share of all rows (0 to 1) that may become dead letters.",
        Appears.SUBMITTED,
        engines=(FUSED,),
        former=("most_dead",),
        minimum=0,
        maximum=1,
    )
    master: str | None = option(
        None,
        "local[N], spark://HOST:PORT, yarn, k8s://...; `cluster` is the one of `cluster up`. Default: local for fused "
        "runs, `cluster` for placed ones.",
        Appears.KEPT | Appears.RESUME,
        engines=(FUSED, PLACED),
    )
    secret_file: str | None = option(
        None,
        "File with the secret of the cluster at --master; that of `cluster up` is known.",
        Appears.USER | Appears.RESUME,
        engines=(FUSED, PLACED),
        is_path=True,
    )
    executor_memory_mb: int | None = option(
        None,
        "Memory of an executor on a cluster; default: that of a slot of the plan, or 1024.",
        engines=(FUSED,),
        unit="MB",
        flag="--executor-memory",
        metavar="MB",
        minimum=MIN_EXECUTOR_MB,
    )
    packages: tuple[str, ...] = option(
        (),
        "A Maven package that a format needs; may be repeated.",
        Appears.SUBMITTED | Appears.RESUME,
        engines=(FUSED, PLACED),
        metavar="PACKAGE",
    )
    settings: Mapping[str, str] = option(
        {},
        "A setting of Spark; may be repeated.",
        Appears.SUBMITTED | Appears.RESUME,
        engines=(FUSED, PLACED),
        flag="--conf",
        metavar="KEY=VALUE",
    )
    folder: str | None = option(
        None,
        "Where the run keeps what it needs to be resumed: a folder, or a URI (s3://...).",
        Appears.USER,
        engines=(FUSED, PLACED),
        is_path=True,
    )
    checkpoint: str | None = option(
        None, "Where Spark keeps its checkpoint, a path or URI; default: in the folder.", engines=(FUSED,), is_path=True
    )
    routing: str | None = option(
        None,
        "shuffle or slot-aware; default: that of the plan.",
        Appears.SUBMITTED,
        engines=(PLACED, SIMULATED),
        choices=("shuffle", "slot-aware"),
    )
    segmenter: str | None = option(
        None,
        "Policy that decides which operators on one slot run as one; default: ends.",
        Appears.SUBMITTED,
        engines=(PLACED,),
    )
    at_least_once: bool = option(
        False,
        "Also write sinks that cannot commit by epoch; after a failure an epoch may be in them twice.",
        Appears.SUBMITTED,
        engines=(PLACED,),
    )
    tls: str | None = option(
        None,
        "PEM file with a certificate and its key, for TLS between the processes of the run.",
        engines=(PLACED,),
        is_path=True,
    )
    models: Any = option(  # noqa: RUF009 - a field's declaration
        None,
        "Model file or folder; the reference models stay known beside it.",
        Appears.USER | Appears.RESUME,
        is_path=True,
        takes="ModelsLike",
    )
    session: Any = option(  # noqa: RUF009 - a field's declaration
        None,
        "A Spark session of your own instead of a master; it is left as it was.",
        Appears.PYTHON | Appears.RESUME,
        engines=(FUSED, PLACED),
        takes="Any",
    )

    def __post_init__(self) -> None:
        for declared in options():
            try:
                value = declared.read(getattr(self, declared.key))
            except ValueError as error:
                raise BadInputError(f"{declared.key}=: {error}") from error
            object.__setattr__(self, declared.key, value)
        if self.run_seconds is not None and self.run_seconds <= self.warm_up_seconds:
            raise BadInputError(
                f"seconds=: expected more than the warm-up of {self.warm_up_seconds:g}, found {self.run_seconds:g}"
            )

    @classmethod
    def of_keywords(cls, given: Mapping[str, Any], stacklevel: int = 2) -> RunConfig:
        """Return the options a user gave as Python keywords or on the command line, checked together."""
        present = with_present_names(given, _present_names(), stacklevel=stacklevel + 1)
        for name in present:
            if name not in _by_key():
                raise TypeError(f"unknown option '{name}='; {nearest(name, _by_key())}")
        config = cls(**present)
        config._check_together()
        return config

    @classmethod
    def of_json(cls, document: Any, where: str, *, warn: bool = True) -> RunConfig:
        """Return the options that `to_json` wrote. `where` names the document in errors; `warn`: report former names,
        which a file of an earlier version may have."""
        return cls(**read_options(document, where, warn=warn))

    def to_json(self) -> dict[str, Any]:
        """Return the options of this engine that last longer than a process, without settings that hold a secret."""
        from penstock.dataflow.secrets import without_secrets  # noqa: PLC0415 - not needed for help

        document: dict[str, Any] = {}
        for declared in options(Appears.FILE):
            value = getattr(self, declared.key)
            if value is None or (self.engine != AUTO and self.engine not in declared.engines):
                continue
            if declared.key == "rate":
                value = value if isinstance(value, str | float | int) else value.document()
            elif declared.key == "settings":
                value = without_secrets(value)
            elif declared.kind is tuple:
                value = list(value)
            document[declared.key] = value
        return document

    def for_engine(self, engine: str) -> RunConfig:
        """Return the options for that engine; raise `BadInputError` if it does not have one of them."""
        for declared in options():
            if engine in declared.engines or getattr(self, declared.key) == declared.default:
                continue
            others = " or ".join(f"engine='{other}'" for other in declared.engines if other != SIMULATED)
            remedy = f", or use {others}" if others else ""
            raise BadInputError(f"{declared.key}=: not an option of engine '{engine}'; leave it out{remedy}")
        if engine == PLACED and self.master is not None and self.is_local:
            raise BadInputError(
                f"master=: engine 'placed' needs a cluster, found '{self.master}'; use master='cluster'"
            )
        return replace(self, engine=engine)

    def resumed_with(self, anew: RunConfig) -> RunConfig:
        """Return the options of a run that is resumed: those given anew take the place of those it had."""
        changed = {
            option.key: getattr(anew, option.key)
            for option in options(Appears.RESUME)
            if getattr(anew, option.key) != option.default
        }
        changed["settings"] = {**self.settings, **anew.settings}
        if anew.session is not None:
            changed["master"] = None
        return replace(self, **changed)

    def _check_together(self) -> None:
        if self.master is not None and self.session is not None:
            raise BadInputError("master= and session=: keep one; a session has its master")
        if self.executor_memory_mb is not None and (self.is_local or self.session is not None):
            raise BadInputError(
                "executor_memory_mb=: only on a cluster; embedded Spark, and a session, have their memory"
            )
        if not self.find_max:
            if self.low is not None or self.high is not None:
                raise BadInputError("low= and high= mean something only with find_max=")
            return
        if self.rate is not None:
            raise BadInputError("find_max= searches for the rate itself; leave out rate=")
        for key in ("low", "high"):
            value = getattr(self, key)
            if value is not None and value <= 0:
                raise BadInputError(f"{key}=: expected a rate above 0, found {value:g}")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise BadInputError(f"low=: expected less than high=, found {self.low:g} and {self.high:g}")

    @property
    def run_seconds(self) -> float | None:
        """Seconds of the run or of each trial; None: until it is stopped."""
        return SEARCH_SECONDS if self.find_max and self.seconds is None else self.seconds

    @property
    def warm_up_seconds(self) -> float:
        """Seconds at the start that the report leaves out."""
        return default_warm_up(self.run_seconds) if self.warm_up is None else self.warm_up

    @property
    def is_local(self) -> bool:
        """Whether the run has an embedded Spark of its own."""
        return self.session is None and (self.master is None or self.master.startswith("local"))

    @property
    def load(self) -> Load | None:
        """The rate as a load over time; None: that of the plan."""
        from penstock.dataflow.load import Load, parse_load  # noqa: PLC0415 - loads numpy

        if self.rate is None or isinstance(self.rate, Load):
            return self.rate
        return parse_load(str(self.rate))


def read_options(document: Any, where: str, appears: Appears = Appears.FILE, *, warn: bool = True) -> dict[str, Any]:
    """Return the values that a document of JSON has for options of that place, by present names."""
    if not isinstance(document, dict):
        raise BadInputError(f"{where}: expected a mapping of run options, found {type(document).__name__}")
    values = {}
    for key, value in with_present_names(document, _present_names(), "'{}'", warn=warn).items():
        declared = _by_key().get(key)
        if declared is None or appears not in declared.appears:
            known = [option.key for option in options(appears)]
            raise BadInputError(f"{where}: unknown run option '{key}'; {nearest(key, known)}")
        try:
            values[key] = declared.read(_load_of_json(value) if key == "rate" else value)
        except (ValueError, BadInputError, TypeError) as error:
            raise BadInputError(f"{where}: {key}: {error}") from error
    return values


def default_warm_up(seconds: float | None) -> float:
    """Return the seconds left out of a run of that length: `min(5, seconds / 4)`."""
    return MAX_WARM_UP_SECONDS if seconds is None else min(MAX_WARM_UP_SECONDS, seconds / 4)


def _load_of_json(value: Any) -> Any:
    from penstock.dataflow.load import Load  # noqa: PLC0415 - loads numpy

    try:
        return Load.of_document(value) if isinstance(value, dict) else value
    except KeyError as error:
        raise BadInputError(f"expected a load, found no {error}") from error


# The declarations as a table.


@cache
def _declared() -> tuple[Option, ...]:
    types = get_type_hints(RunConfig, {"Load": object, **globals()})
    declared = []
    for option in dataclasses.fields(RunConfig):
        default = {} if option.default is dataclasses.MISSING else option.default
        declared.append(Option(key=option.name, default=default, kind=_kind(types[option.name]), **option.metadata))
    return tuple(declared)


def _kind(annotation: Any) -> type:
    """Return the one type an annotation allows beside None; object if there are several."""
    kinds = [it for it in get_args(annotation) if it is not NoneType] if isinstance(annotation, UnionType) else []
    kind = kinds[0] if len(kinds) == 1 else object if kinds else annotation
    if get_origin(kind) is Mapping:
        return dict
    kind = get_origin(kind) or kind
    return object if kind is Any else kind


def options(appears: Appears | None = None) -> tuple[Option, ...]:
    """Return all declared options, or those that appear in that place."""
    return tuple(it for it in _declared() if appears is None or appears in it.appears)


@cache
def _by_key() -> dict[str, Option]:
    return {declared.key: declared for declared in _declared()}


@cache
def _present_names() -> dict[str, str]:
    return {former: declared.key for declared in _declared() for former in declared.former}


def list_options(function: F, parameters: Iterable[inspect.Parameter], *, evaluate: bool = False) -> F:
    """Let the signature of `function` list these parameters instead of its `**options`. Return the function.
    `evaluate`: its annotations are read by a library that takes no text for a type."""
    own = inspect.signature(function, eval_str=evaluate)
    named = [option for option in own.parameters.values() if option.kind is not option.VAR_KEYWORD]
    first = [option for option in named if option.kind is not option.KEYWORD_ONLY]
    last = [option for option in named if option.kind is option.KEYWORD_ONLY]
    known = {option.name for option in named}
    listed = [option for option in parameters if option.name not in known]
    function.__signature__ = own.replace(parameters=[*first, *listed, *last])  # type: ignore[attr-defined]
    return function


def takes_options(appears: Appears) -> Callable[[F], F]:
    """Let help and editors show the options that a Python function takes as keywords."""

    def decorate(function: F) -> F:
        keyword = inspect.Parameter.KEYWORD_ONLY
        declared = [inspect.Parameter(option.key, keyword, default=option.default) for option in options(appears)]
        return list_options(function, declared)

    return decorate
