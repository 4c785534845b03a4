"""What to say of a run during which others used the machine."""

from __future__ import annotations

from penstock.modelling.fit import QUIET


def disturbance(others_cpu: float) -> list[str]:
    """A note where others used much of the machine during a run."""
    if others_cpu <= QUIET:
        return []
    return [
        f"other processes, or the host of this machine, used {100 * others_cpu:.0f} % of it meanwhile: what was "
        "measured is lower than it would be on a quiet one"
    ]
