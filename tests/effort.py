"""How many examples a property is tried on, as a multiple of what the profile says (tests/conftest.py)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def tries(times: float = 1.0, *, picky: bool = False) -> settings:
    """`times` as many examples as the profile says: more where an example is cheap, fewer where it is dear.

    A `picky` property throws most of what is drawn away, which hypothesis would otherwise complain about.
    """
    profile = settings()
    silenced = [*profile.suppress_health_check, *([HealthCheck.filter_too_much] if picky else [])]
    return settings(max_examples=max(1, round(times * profile.max_examples)), suppress_health_check=silenced)
