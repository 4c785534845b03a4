"""Former names of keywords, options and fields: they still work, and name their replacement once per process."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.base.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    F = TypeVar("F", bound=Callable[..., Any])

_reported: set[tuple[str, str]] = set()


class FormerNameWarning(FutureWarning):
    """A name of an earlier version was used."""


def report_former_name(former: str, name: str, stacklevel: int = 2) -> None:
    """Warn that `former` is now `name`, the first time only."""
    if (former, name) not in _reported:
        _reported.add((former, name))
        warnings.warn(f"{former} is now {name}", FormerNameWarning, stacklevel=stacklevel + 1)


def with_present_names(
    given: Mapping[str, Any], present: Mapping[str, str], style: str = "{}=", stacklevel: int = 2, *, warn: bool = True
) -> dict[str, Any]:
    """Return `given` with former names replaced by those in `present`. Raise `BadInputError` if a value is given under
    both names. `style` formats a name for people."""
    written: dict[str, str] = {}
    for key in given:
        name = present.get(key, key)
        if name in written:
            first, second = style.format(written[name]), style.format(key)
            raise BadInputError(f"{first} and {second}: two names of one option; keep {style.format(name)}")
        written[name] = key
    for name, key in written.items():
        if warn and name != key:
            report_former_name(style.format(key), style.format(name), stacklevel + 1)
    return {name: given[key] for name, key in written.items()}


def former_keywords(**present: str) -> Callable[[F], F]:
    """Let a function also take keywords by their former names: `@former_keywords(load="utilisation")`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            return function(*arguments, **with_present_names(keywords, present, stacklevel=3))

        return call  # type: ignore[return-value] # takes all that `function` takes

    return decorate
