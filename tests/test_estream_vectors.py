"""The worked cases of E-Stream."""

from __future__ import annotations

from typing import Any

import pytest

import estream_adapters as es
from adapters import Given, cases, close
from penstock.dataflow.pipeline import gains
from penstock.dataflow.task_graph import communication_to_computation, convex_groups, joined_pairs, upward_ranks
from penstock.planning.placement.placers.eft_schedule import Schedule, Shortfall


@pytest.mark.parametrize(("given", "expected"), cases("es_rates"))
def test_rates(given: Given, expected: dict[str, list[float]]) -> None:
    found = gains(es.pipeline(given))
    rates = {name: [found[name].at(given["r"]), found[name + es.PROBE].at(given["r"])] for name in es.names(given)}
    assert rates == {name: close(ends) for name, ends in expected.items()}


@pytest.mark.parametrize(("given", "expected"), cases("es_semantics"))
def test_semantics(given: Given, expected: list[float]) -> None:
    found = gains(es.vertex_with_many_inputs(given["alpha"], given["beta"], given["inputs"]))
    assert [found[f"out{j}"].at(1) for j in range(len(expected))] == close(expected)


@pytest.mark.parametrize(("given", "expected"), cases("es_ccr"))
def test_subgraphs(given: Given, expected: dict[str, Any]) -> None:
    names, order, edges = es.names(given), es.order(given), es.edges(given)
    ratios = communication_to_computation(es.costs(given), edges)
    assert {f"{names[a]}>{names[b]}": ratio for (a, b), ratio in ratios.items()} == close(expected["ccr"])
    joined = joined_pairs(ratios, given.get("delta", 1.0))
    groups = convex_groups(order, [(edge.sender, edge.receiver) for edge in edges], joined)
    assert [[names[vertex] for vertex in group] for group in groups] == expected["groups"]


@pytest.mark.parametrize(("given", "expected"), cases("es_priorities"))
def test_priorities(given: Given, expected: dict[str, float]) -> None:
    found = upward_ranks(es.costs(given), es.edges(given), es.order(given))
    assert dict(zip(es.names(given), found, strict=True)) == close(expected)


@pytest.mark.parametrize(("given", "expected"), cases("es_schedule"))
def test_schedule(given: Given, expected: dict[str, Any]) -> None:
    found = es.scheduled(given)
    if "error" in expected:
        assert isinstance(found, Shortfall)
        assert found.wanted > found.candidates == len(given["nodes"])
        return
    assert isinstance(found, Schedule)
    placed = es.named(given, found)
    assert list(placed) == expected["order"]
    assert placed == {name: [row[0], close(row[1]), close(row[2])] for name, row in expected["placement"].items()}
    assert found.makespan == close(expected["makespan"])


@pytest.mark.parametrize(("given", "expected"), cases("es_reschedule"))
def test_reschedule(given: Given, expected: dict[str, Any]) -> None:
    found = es.scheduled(given)
    assert isinstance(found, Schedule)
    placed = es.named(given, found)
    assert placed == {name: [row[0], close(row[1]), close(row[2])] for name, row in expected["placement"].items()}
    moved = found.moved(es.current(given))
    assert [es.names(given)[each.vertex] for each in moved] == expected["moved"]
