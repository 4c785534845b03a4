"""Types changed wherever they stand."""

from __future__ import annotations

import pyarrow as pa

from penstock.runtime.nested_values import in_zone


def times(zone: str) -> pa.Schema:
    """Moments, and beside them what is none, in everything that holds others."""
    moment = pa.timestamp("us", zone)
    within = pa.struct([pa.field("at", moment, nullable=False), pa.field("n", pa.int64())])
    return pa.schema(
        [
            pa.field("at", moment, nullable=False),
            pa.field("local", pa.timestamp("us")),
            pa.field("s", within),
            pa.field("a", pa.list_(pa.field("element", within, nullable=False))),
            pa.field("l", pa.large_list(moment)),
            pa.field("m", pa.map_(moment, pa.field("value", pa.list_(moment), nullable=False))),
            pa.field("t", pa.string(), metadata={"k": "v"}),
        ]
    )


def test_moments_get_the_sessions_zone_wherever_they_stand() -> None:
    moved = in_zone(times("UTC"), "America/New_York")
    assert moved.equals(times("America/New_York"), check_metadata=True)
