"""What can be set about following the load. Times in seconds, loads as parts of what a size can do."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class ElasticOptions:
    enabled: bool = True
    advise_only: bool = False
    """Say what would be done, and do nothing."""
    decide_seconds: float = 10.0
    look_back_seconds: float = 60.0
    """Over which the load is smoothed."""
    first_load: float = 0.85
    """Load to size for while nothing is known of how much it swings."""
    least_load: float = 0.7
    most_load: float = 0.95
    """Between these the load to size for follows from the measured spread."""
    catch_up_seconds: float = 120.0
    """A backlog that will last longer is a reason to grow at once."""
    shrink_after_seconds: float = 15 * MINUTE
    """So long all that was needed must have been less."""
    shrink_most: float = 0.4
    """Of a size, at a step; more only to a size that was enough before."""
    worth_seconds: float = 15 * MINUTE
    """A change is worth what the whole pipeline costs in so long: less than that wasted is left alone."""
    shrink_least: float = 0.12
    """Of a size, at a step: less is not given back."""
    grow_least: float = 0.08
    """Of a size, at a step: a change that adds less would soon be followed by another."""
    ahead_seconds: float = HOUR
    """How far the forecast is asked when a size is chosen."""
    memory_seconds: float = DAY
    """For how long peaks are remembered."""
    no_effect: float = 0.1
    """A change that gives less than this part of what was expected was none."""
    unmeasured_seconds: float = MINUTE
    """Without a load for so long the last good size is kept, and it is said."""
    excluded_hours: tuple[int, ...] = ()
    """Hours of the day (0-23, UTC) in which nothing is given back."""
    forecast: str = "seasonal"
    veto: str = ""
    """module:attribute of a function that takes the verdict as plain values and answers whether it may be."""
