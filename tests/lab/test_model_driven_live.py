"""The five pairs on Spark: their shapes, and what is said of rates that were measured."""

from __future__ import annotations

from typing import Any

import penstock
from penstock_lab.contract import Agreement, CaseResult, Line, Results
from penstock_lab.experiments import model_driven_live as live
from penstock_lab.published_values import read_published


def measured(planned: float, predicted: float, actual: float, cpu: float) -> dict[str, Any]:
    slot = {"node": "n1", "slot": 0}
    return {
        "planned": planned,
        "predicted": predicted,
        "actual": actual,
        "slots": [{**slot, "cpu": cpu, "memory_mb": 100 * cpu}],
        "predicted_slots": [{**slot, "cpu": cpu, "memory": 100.0}],
    }


def lines(pairs: dict[str, Any]) -> dict[str, Line]:
    results = Results((CaseResult({"pipeline": "linear"}, {"pairs": pairs}),))
    return {line.what: line for line in live.ModelDrivenLive().lines(results, read_published("model-driven-live"))}


def test_all_shapes_have_all_operators() -> None:
    for name in ("linear", "diamond", "star"):
        found = penstock.find_pipeline(f"{live.__name__}:{name}")
        assert set(found.operators) == {"source", *live.CODE, "sink"}
        assert found.name == live.NAME


def test_a_prediction_that_is_nearer_beats_the_plan() -> None:
    """Predicted 90, 210, 300 where 100, 200, 290 were measured; planned is twice that."""
    rows = {"lsa+dsm": (200, 90, 100, 0.2), "mba+dsm": (400, 210, 200, 0.4), "mba+sam": (580, 300, 290, 0.5)}
    found = lines({pair: measured(*row) for pair, row in rows.items()})
    beats = found["whether prediction beats plan (planned, predicted, actual)"]
    assert (beats.verdict, beats.why[:7]) == (Agreement.NOT_COMPARABLE, "one run")
    assert beats.ours.startswith("lsa+dsm 200, 90, 100; ")
    # cpu as predicted: R2 is 1; memory was predicted the same for all
    assert found["R2 of predicted and actual cpu per slot"].verdict is Agreement.AGREES
    assert found["R2 of predicted and actual memory"].verdict is Agreement.NOT_COMPARABLE
    # 200 and 290 where LSA does 100
    assert found["actual rate of MBA over LSA"].ours == "100 to 190 % more"


def test_a_plan_that_is_nearer_differs() -> None:
    rows = {"lsa+dsm": (100, 300, 110, 0.2), "lsa+rsm": (200, 100, 190, 0.3), "mba+sam": (300, 200, 290, 0.5)}
    found = lines({pair: measured(*row) for pair, row in rows.items()} | {"mba+rsm": {"planned": None}})
    assert found["whether prediction beats plan (planned, predicted, actual)"].verdict is Agreement.DIFFERS
