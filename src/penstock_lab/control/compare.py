"""All controllers under the same cases, and what that comes to in the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_lab.control.judging import RIVALS, judge, judge_oracle, judge_peak
from penstock_lab.control.ours import ours

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock_lab.control.judging import Judged
    from penstock_lab.control.loads import LoadTrace
    from penstock_lab.control.plant import Site

CONTROLLERS = ("ours", "band", "lag", "published", "peak", "oracle")


def judged_by(name: str, sites: Sequence[Site], traffics: Sequence[LoadTrace], *, trail_every: int = 0) -> list[Judged]:
    """One controller, by name, in all cases."""
    if name == "oracle":
        return judge_oracle(sites, traffics)
    if name == "peak":
        return judge_peak(sites, traffics)
    return judge(sites, traffics, ours if name == "ours" else RIVALS[name], trail_every=trail_every)


def compare(
    sites: Sequence[Site], traffics: Sequence[LoadTrace], on_message: Callable[[str], None] | None = None
) -> dict[str, list[Judged]]:
    judged = {}
    for name in CONTROLLERS:
        if on_message is not None:
            on_message(name)
        judged[name] = judged_by(name, sites, traffics)
    return judged


def means(judged: Mapping[str, Sequence[Judged]]) -> dict[str, dict[str, float]]:
    """By controller: slot-hours over the oracle's (as a part of them), seconds outside the target, changes."""
    best = judged["oracle"]
    return {
        name: {
            "slot_hours_over_oracle": _mean(
                [case.slot_hours / least.slot_hours - 1 for case, least in zip(cases, best, strict=True)]
            ),
            "outside_target_s": _mean([case.outside_s for case in cases]),
            "changes": _mean([case.changes for case in cases]),
        }
        for name, cases in judged.items()
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
