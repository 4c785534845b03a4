"""An online auction as a stream of events: people register, auctions open, bids come in. The shape is that of Nexmark
(one person and three auctions among fifty events, all others bids); the generator is our own."""

from __future__ import annotations

from typing import Any

from penstock.workloads.applications.draws import Draws

ROUND = 50
"""Events of which the first is a person, the next three are auctions and the rest are bids."""
AUCTIONS_OF_ROUND = 3
STATES = ("OR", "ID", "CA", "WA", "AZ", "WY")
CATEGORIES = 5
FIRST_CATEGORY = 10
RECENT_AUCTIONS, RECENT_PEOPLE = 60, 30
"""Bids are for one of the last so many auctions; sellers and bidders are among the last so many people."""
OPEN_SECONDS = 4
BEGINNING = 1_767_225_600.0
GAP_SECONDS = 0.01

COLUMNS = (
    "kind string, ts double, person bigint, name string, state string, auction bigint, seller bigint, "
    "category int, expires double, bidder bigint, price bigint"
)
"""Of all events; those of another kind have nothing there."""


def auction_event(number: int) -> dict[str, Any]:
    """Event `number`: people and auctions have the numbers 0, 1, 2, ... in the order they appear."""
    round_number, place = divmod(number, ROUND)
    draw = Draws(number)
    ts = BEGINNING + number * GAP_SECONDS
    if place == 0:
        return {
            "kind": "person",
            "ts": ts,
            "person": round_number,
            "name": f"person{round_number}",
            "state": STATES[draw.below(len(STATES))],
        }
    if place <= AUCTIONS_OF_ROUND:
        return {
            "kind": "auction",
            "ts": ts,
            "auction": round_number * AUCTIONS_OF_ROUND + place - 1,
            "seller": _recent(round_number + 1, RECENT_PEOPLE, draw),
            "category": FIRST_CATEGORY + draw.below(CATEGORIES),
            "expires": ts + 1 + draw.below(OPEN_SECONDS),
        }
    opened = (round_number + 1) * AUCTIONS_OF_ROUND
    return {
        "kind": "bid",
        "ts": ts,
        "auction": _recent(opened, RECENT_AUCTIONS, draw),
        "bidder": _recent(round_number + 1, RECENT_PEOPLE, draw),
        "price": 100 + draw.below(10_000),
    }


def _recent(count: int, window: int, draw: Draws) -> int:
    return count - 1 - draw.below(min(count, window))
