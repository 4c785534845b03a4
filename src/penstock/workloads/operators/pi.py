"""Pi by Viete's product: floating-point work and nothing else.

    2 / pi = sqrt(2)/2 * sqrt(2 + sqrt(2))/2 * sqrt(2 + sqrt(2 + sqrt(2)))/2 * ...

The product is cut after a fixed number of factors, 15 as published, so that every tuple costs the same. One evaluation
takes microseconds, so a tuple asks for several.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from penstock.dataflow.logic import Logic
from penstock.workloads.incoming import number_of

FACTORS = 15
EVALUATIONS = 75


def viete(factors: int = FACTORS) -> float:
    root, product = 0.0, 1.0
    for _ in range(factors):
        root = sqrt(2.0 + root)
        product *= root / 2.0
    return 2.0 / product


def pi_logic(factors: int = FACTORS, evaluations: int = EVALUATIONS) -> Logic:
    """Code that evaluates the product `evaluations` times for each tuple."""

    def compute_pi(row: dict[str, Any]) -> dict[str, Any]:
        result = 0.0
        for _ in range(evaluations):
            result = viete(factors)
        return {"value": number_of(row), "pi": result}

    return Logic(compute_pi, schema="value bigint, pi double")


pi = pi_logic()
