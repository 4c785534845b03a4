"""Policies by name: explicit tables, extended by third parties through entry points.

A policy is asked for as `name` or `name:option=value,option=value`; its options are the fields of its dataclass.
An unknown name or option is an error that lists the known ones; nothing falls back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.base.errors import BadInputError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

P = TypeVar("P")


@dataclass(frozen=True)
class Registry(Generic[P]):
    """`kind` ("placer"), the entry point group third parties use, and `module:Class` of every built-in policy.

    Classes are imported when asked for, so that listing names costs nothing.
    """

    kind: str
    group: str
    built_in: Mapping[str, str]
    needs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The Python package some built-in policies need, and the extra of Penstock that brings it."""

    @cached_property
    def _addresses(self) -> dict[str, str]:
        addresses = dict(self.built_in)
        for entry in metadata.entry_points(group=self.group):
            if entry.name in addresses:
                raise BadInputError(f"{self.kind} '{entry.name}' is registered twice, the second time by {entry.value}")
            addresses[entry.name] = entry.value
        return addresses

    def names(self) -> list[str]:
        """The policies that can be used here: those whose package is missing are left out."""
        return [name for name in self._addresses if not self._lacks(name)]

    def _lacks(self, name: str) -> bool:
        return name in self.needs and find_spec(self.needs[name][0]) is None

    def listed(self, default: str = "") -> str:
        """Return the names as the help of an option shows them."""
        return ", ".join(f"{name} (default)" if name == default else name for name in self.names())

    def load(self, name: str) -> Any:
        """Return the class of a policy, or the declaration, that is registered under a name."""
        if name not in self._addresses:
            raise BadInputError(f"unknown {self.kind} '{name}'; {nearest(name, self.names())}")
        if self._lacks(name):
            package, extra = self.needs[name]
            raise BadInputError(f"{self.kind} '{name}' needs {package}: pip install 'penstock[{extra}]'")
        module, _, attribute = self._addresses[name].partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise BadInputError(f"{self.kind} '{name}' cannot be loaded from {module}: {error}") from error

    def create(self, asked: str) -> P:
        """The policy asked for, with its options."""
        name, _, options = asked.partition(":")
        policy: P = with_options(self.load(name), f"{self.kind} '{name}'", options)
        return policy


def with_options(policy_class: type[P], who: str, options: str) -> P:
    """Return a dataclass with fields set by `option=value,option=value`; errors name `who` ("placer 'sam'")."""
    given: dict[str, str] = {}
    known = [field.name for field in fields(policy_class)]  # type: ignore[arg-type] # whoever registers sees to it
    for part in filter(None, options.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise BadInputError(f"{who}: expected option=value, found '{part}'")
        if option not in known:
            raise BadInputError(f"{who}: unknown option '{option}'; {nearest(option, known)}")
        given[option] = value
    if not given:
        return policy_class()
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - names are listed without it

    from penstock.base.files import describe  # noqa: PLC0415 - loads pydantic

    try:
        return TypeAdapter(policy_class).validate_python(given)
    except ValidationError as error:
        raise BadInputError(f"{who}: {describe(error)}") from error
