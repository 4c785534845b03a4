"""How much the streams of a pipeline count where threads are put close together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.placement.contract import PlacementRequest


def stream_weights(request: PlacementRequest) -> tuple[float, ...]:
    """How much passes between the ends of each stream, as far as known: bytes/s, else tuples/s, else the pairs of
    threads that may talk."""
    if any(request.traffic):
        return request.traffic
    return request.rates if any(request.rates) else thread_pairs(request)


def thread_pairs(request: PlacementRequest) -> tuple[float, ...]:
    """Of each stream: threads of its sender x threads of its receiver."""
    threads = [operator.threads for operator in request.operators]
    return tuple(float(threads[sender] * threads[receiver]) for sender, receiver in request.streams)


def common_weights(requests: Sequence[PlacementRequest]) -> list[tuple[float, ...]]:
    """The weights of every pipeline's streams in one measure: bytes/s or tuples/s where every pipeline knows them,
    else pairs of threads, which all of them have."""
    talking = [request for request in requests if request.streams]
    if all(any(request.traffic) for request in talking):
        return [request.traffic for request in requests]
    if all(any(request.rates) for request in talking):
        return [request.rates for request in requests]
    return [thread_pairs(request) for request in requests]


def valued(requests: Sequence[PlacementRequest]) -> list[PlacementRequest]:
    """Pipelines told what their streams are worth beside each other's (`PlacementRequest.streams_worth`).

    worth = streams + all streams x its part of all weight, so that half of all worth goes with what passes through.
    """
    weights = [sum(row) for row in common_weights(requests)]
    total, streams = sum(weights), sum(len(request.streams) for request in requests)
    if not total:
        return list(requests)
    return [
        replace(request, streams_worth=len(request.streams) + streams * weight / total)
        for request, weight in zip(requests, weights, strict=True)
    ]
