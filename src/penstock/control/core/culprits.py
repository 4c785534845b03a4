"""A division that raises, and who is to blame: the policy, a node, or a pipeline."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.control.core.blame import Blamable, BlamedError, Culprit
from penstock.control.core.division import Division, Wish, divide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PLAIN_WISH = asdict(Wish("a plain pipeline", desired=1, minimum=1, priority=1, waited=0.0, fairness=1.0, slots=()))
"""A pipeline that no policy should reject."""


def blamed_division(inputs: Mapping[str, Any]) -> Division:
    try:
        return divide(inputs)
    except Exception as error:
        raise BlamedError(_culprit(inputs), error) from error


def _culprit(inputs: Mapping[str, Any]) -> Culprit:
    nodes = [{**group, "names": [name]} for group in inputs["nodes"] for name in group["names"]]
    if _raises({**inputs, "pipelines": [PLAIN_WISH]}):
        count = _shortest(len(nodes), lambda count: {**inputs, "nodes": nodes[:count], "pipelines": [PLAIN_WISH]})
        others = [*nodes[: count - 1], *nodes[count:]]
        if count == 1 and (not others or _raises({**inputs, "nodes": others[:1], "pipelines": [PLAIN_WISH]})):
            return Culprit(Blamable.POLICY, inputs["sharing"])
        return Culprit(Blamable.NODE, nodes[count - 1]["names"][0])
    pipelines: Sequence[Mapping[str, Any]] = inputs["pipelines"]
    count = _shortest(len(pipelines), lambda count: {**inputs, "pipelines": pipelines[:count]})
    return Culprit(Blamable.PIPELINE, pipelines[count - 1]["name"])


def _shortest(count: int, inputs_with: Callable[[int], Mapping[str, Any]]) -> int:
    """Find by bisection the smallest n for which the first n raise. Requires: the first 0 do not raise, all do."""
    fine, raising = 0, count
    while raising - fine > 1:
        middle = (fine + raising) // 2
        fine, raising = (fine, middle) if _raises(inputs_with(middle)) else (middle, raising)
    return raising


def _raises(inputs: Mapping[str, Any]) -> bool:
    try:
        divide(inputs)
    except Exception:  # whatever it is: it is only asked whether
        return True
    return False
