"""What tuples that were put through a pipeline say of its operators, by the names of their models."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from penstock.spark.trials.samples import SampledFlow, Taken


def columns_by_model(operators: Mapping[str, str], taken: Taken) -> dict[str, str]:
    """What came to the operator of each model, where anything did."""
    inputs = {name: [sample] for name, sample in taken.code.items()} | {
        name: list(own.inputs) for name, own in taken.sparks_own.items()
    }
    return {
        model: "; ".join(_described(sample.rows.schema) for sample in inputs[name])
        for model, name in operators.items()
        if name in inputs
    }


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def flows_by_model(operators: Mapping[str, str], taken: Taken) -> dict[str, SampledFlow]:
    """How many came to its operator, and how many that sent, where it is code of a slot."""
    flows = {name: sample.flow for name, sample in taken.code.items() if sample.flow is not None}
    return {model: flows[name] for model, name in operators.items() if name in flows}


def without_samples(operators: Mapping[str, str], taken: Taken) -> list[str]:
    """Models of operators to which nothing came."""
    return [model for model, name in operators.items() if name not in taken.code and name not in taken.sparks_own]
