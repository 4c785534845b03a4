"""A pipeline placed thread by thread: within its constraints, or where room is too fragmented for anything else.

The largest threads go first, each near those it talks to, and threads of the same pipeline move out of the way of one
that finds no room (`penstock.placement.repair`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.placement.board import Board
from penstock.placement.constraints.refusals import kept_out
from penstock.placement.refusals import no_node
from penstock.placement.repair.insertion import STEPS, Effort, Inserter, scarcity
from penstock.placement.repair.ledger import Ledger
from penstock.placement.slots import slot_limit

if TYPE_CHECKING:
    from penstock.errors import Refusal
    from penstock.placement.contract import PlacedBundle, PlacementRequest, Room
    from penstock.placement.repair.insertion import Stuck


def place_carefully(by: str, request: PlacementRequest, room: Room) -> tuple[PlacedBundle, ...] | Refusal:
    ledger = Ledger(room, [request])
    threads = np.array([operator.threads for operator in request.operators], dtype=float)
    inserter = Inserter(ledger, scarcity(ledger, threads @ ledger.demand))
    if inserter.insert(0, Effort(STEPS), close=True):
        return ledger.placements([0], by)[0].bundles
    return _refusal(by, request, room, inserter.stuck) if inserter.stuck else _too_much(by, request, room)


def _too_much(by: str, request: PlacementRequest, room: Room) -> Refusal:
    """More than is left in all: the refusal of the operator that needs the most of what is short."""
    board = Board(request, room)
    needs = np.array([np.multiply(o.demand, o.threads) for o in request.operators])
    short = int(np.argmax(needs.sum(axis=0) / np.maximum(room.free.clip(min=0.0).sum(axis=0), 1e-300)))
    return no_node(by, request, board, int(np.argmax(needs[:, short])), range(len(room.dimensions)))


def _refusal(by: str, request: PlacementRequest, room: Room, stuck: Stuck) -> Refusal:
    if not stuck.may_enter.any():
        return kept_out(by, request, room, stuck.operator)
    part = room.only(stuck.may_enter)
    board = Board(request, part)
    board.free = stuck.free[stuck.may_enter].T
    board.largest = np.where(stuck.free_slots[stuck.may_enter] > 0, slot_limit(request, part), -np.inf)
    refusal = no_node(by, request, board, stuck.operator, range(len(room.dimensions)))
    if all(shortage.offered >= shortage.needed for shortage in refusal.shortages):
        name = request.operators[stuck.operator].name
        why = "no slot takes one more thread with what its pipeline shares, or keeps apart, on slots"
        return replace(refusal, shortages=(), notes=(f"operator '{name}': {why}",))
    return refusal
