"""Options of how a pipeline follows its load, with bounds: seconds, and utilisation as a share of what a size does."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StrictBool, TypeAdapter, ValidationError

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import describe
from penstock.base.former_names import with_present_names
from penstock.control.errors import FieldError
from penstock.control.registry import FORECASTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.control.elasticity.memory import SizeVerdict


MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0

Seconds = Annotated[float, Field(ge=0, le=DAY, allow_inf_nan=False, strict=True)]
SomeSeconds = Annotated[float, Field(ge=0.1, le=DAY, allow_inf_nan=False, strict=True)]
"""What is divided by is never 0."""
MemorySeconds = Annotated[float, Field(ge=0, le=30 * DAY, allow_inf_nan=False, strict=True)]
Utilisation = Annotated[float, Field(ge=0.01, le=1, allow_inf_nan=False, strict=True)]
SizePart = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
HourOfDay = Annotated[int, Field(ge=0, le=23, strict=True)]
Words = Annotated[str, Field(max_length=500, strict=True)]


@dataclass(frozen=True, slots=True)
class ElasticOptions:
    enabled: StrictBool = True
    advise_only: StrictBool = False
    """Say what would be done, and do nothing."""
    decide_seconds: SomeSeconds = 10.0
    look_back_seconds: SomeSeconds = 60.0
    """Over which the load is smoothed."""
    first_utilisation: Utilisation = 0.85
    """Target utilisation until it is known how much the load varies."""
    min_utilisation: Utilisation = 0.7
    max_utilisation: Utilisation = 0.95
    """Between these the target utilisation follows from the measured spread of the load."""
    catch_up_seconds: SomeSeconds = 120.0
    """A backlog that will last longer is a reason to grow at once."""
    shrink_after_seconds: Seconds = 15 * MINUTE
    """So long all that was needed must have been less."""
    shrink_most: SizePart = 0.4
    """Of a size, at a step; more only to a size that was enough before."""
    worth_seconds: Seconds = 15 * MINUTE
    """A change is worth what the whole pipeline costs in so long: less than that wasted is left alone."""
    shrink_least: SizePart = 0.12
    """Of a size, at a step: less is not given back."""
    grow_least: SizePart = 0.08
    """Of a size, at a step: a change that adds less would soon be followed by another."""
    ahead_seconds: Seconds = HOUR
    """How far the forecast is asked when a size is chosen."""
    memory_seconds: MemorySeconds = DAY
    """For how long peaks are remembered."""
    no_effect: SizePart = 0.1
    """A change that gives less than this part of what was expected was none."""
    unmeasured_seconds: Seconds = MINUTE
    """Without a load for so long the last good size is kept, and it is said."""
    excluded_hours: Annotated[tuple[HourOfDay, ...], Field(max_length=24)] = ()
    """Hours of the day (0-23, UTC) in which nothing is given back."""
    forecast: Words = "seasonal"
    veto: Words = ""
    """module:attribute of a function that takes the verdict as plain values and answers whether it may be."""


_SHAPE = TypeAdapter(ElasticOptions)
_NAMES = [option.name for option in fields(ElasticOptions)]


FORMER_NAMES = MappingProxyType(
    {"first_load": "first_utilisation", "least_load": "min_utilisation", "most_load": "max_utilisation"}
)


def changed_options(before: Mapping[str, Any] | None, anew: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with those given anew in the place of former values, which a store may have by former names."""
    return {
        **with_present_names(before or {}, FORMER_NAMES, warn=False),
        **with_present_names(anew, FORMER_NAMES, warn=False),
    }


def checked_options(given: Mapping[str, Any]) -> ElasticOptions:
    """Return the options as they will be used, or raise a `FieldError` that names the wrong one."""
    given = with_present_names(given, FORMER_NAMES, warn=False)
    for name in given:
        if name not in _NAMES:
            raise FieldError(f"elastic.{name}", f"unknown option; {nearest(name, _NAMES)}")
    try:
        options = _SHAPE.validate_python(dict(given))
    except ValidationError as error:
        name = str(error.errors(include_url=False)[0]["loc"][0])
        raise FieldError(f"elastic.{name}", describe(error).partition(": ")[2]) from error
    try:
        FORECASTS.create(options.forecast)
    except BadInputError as error:
        raise FieldError("elastic.forecast", str(error)) from error
    low, high = options.min_utilisation, options.max_utilisation
    if low > high:
        raise FieldError("elastic.min_utilisation", f"{low:g} is above max_utilisation, {high:g}")
    return options


# Limits of every change: bounds, hours, a pause, advice only, a veto.


@dataclass(frozen=True, slots=True)
class Bounds:
    """Units: minimum and maximum of the pipeline, and what quota, budget and partitions leave."""

    minimum: int = 1
    maximum: int | None = None
    divisor_of: int | None = None
    """Partitions of the source: sizes that divide it evenly are taken where one is near."""

    def clamp(self, units: int) -> int:
        most = units if self.maximum is None else min(units, self.maximum)
        return max(self.minimum, most)


NEAR = 1.2
"""A divisor of the partitions up to so many times the size is taken instead of it."""


def even(units: int, bounds: Bounds) -> int:
    """The next size that divides the partitions evenly, where that is near; never more units than partitions."""
    partitions = bounds.divisor_of
    if not partitions:
        return units
    if units >= partitions:
        return partitions
    for size in range(units, int(units * NEAR) + 1):
        if partitions % size == 0:
            return size
    return units


def forbidden(
    verdict: SizeVerdict, options: ElasticOptions, now: float, veto: Callable[[SizeVerdict], str | None] | None
) -> str | None:
    """Why this change may not be; None: it may."""
    if not options.enabled:
        return "following the load is paused"
    if int(now % 86_400 // 3600) in options.excluded_hours:
        return f"hour {int(now % 86_400 // 3600)} (UTC) is excluded"
    if veto is not None and (reason := veto(verdict)) is not None:
        return f"vetoed: {reason}"
    if options.advise_only:
        return "advice only"
    return None
