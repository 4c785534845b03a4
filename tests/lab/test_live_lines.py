"""The table of the live use cases: the order of the two published policies, and nothing said that was not seen."""

from __future__ import annotations

from typing import Any

from penstock_lab.contract import Agreement, CaseResult, Results
from penstock_lab.experiments.live_experiments import PriorityLive
from penstock_lab.experiments.priority_live_lines import TUNED
from penstock_lab.published_values import read_published


def done(policy: str, high: float | None, low: float | None) -> CaseResult:
    seconds: dict[str, Any] = {"TT high": high, "TT low": low, "O": None}
    measures = {"nodes_off": [3, 2], "nodes_on": [3, 2], "lost": 0, **seconds, "simulated": {**seconds, "O": 0.0}}
    return CaseResult({"use": 2, "policy": policy}, measures)


def lines(*results: CaseResult) -> list[tuple[Agreement, str]]:
    made = PriorityLive().lines(Results(results), read_published("priority"))
    return [(line.verdict, line.why) for line in made]


def test_orders_as_published_and_the_other_way_round() -> None:
    high, low, *of_cases = lines(done("static-priority", 6.0, 0.8), done("dynamic-priority", 5.0, 0.7))
    assert high == (Agreement.NOT_COMPARABLE, TUNED)
    assert low[0] is Agreement.DIFFERS
    assert "on one slot as on two" in low[1]
    assert [verdict for verdict, _ in of_cases] == [Agreement.NOT_COMPARABLE] * 2


def test_every_event_is_told() -> None:
    static, dynamic = done("static-priority", 6.0, 0.8), done("dynamic-priority", 5.0, 0.9)
    timed = CaseResult(dynamic.case, {**dynamic.measures, "TE": 12.5, "TE each": [14.0, 11.0]})
    made = PriorityLive().lines(Results((static, timed)), read_published("priority"))
    assert str(made[-1].ours).endswith("T_E 12.5, T_T high 5, T_T low 0.9, O none (14.0, 11.0); 0")


def test_what_came_to_no_end_is_not_compared() -> None:
    high, low, *_ = lines(done("static-priority", 6.0, None), done("dynamic-priority", 7.0, 0.7))
    assert high == (Agreement.DIFFERS, "the other order here")
    assert low == (Agreement.NOT_COMPARABLE, "nothing came to its end")


def test_what_is_published_is_run_first() -> None:
    cases = PriorityLive().cases(quick=False)
    assert [(case["use"], case["policy"]) for case in cases[:4]] == [
        (2, "static-priority"),
        (2, "dynamic-priority"),
        (1, "static-priority"),
        (1, "dynamic-priority"),
    ]
    assert len(cases) == 8
    assert PriorityLive().cases(quick=True) == cases[:2]
