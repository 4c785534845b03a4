"""Nexmark's queries 0 to 5, 7 and 8 over our own stream of an auction, as Spark's own operators.

Time is that of the events. What a window or a join sends is final: nothing more comes for it.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.dataflow.logic import Logic, Per
from penstock.workloads.applications.messages import COLUMNS, FIRST_CATEGORY, OPEN_SECONDS, auction_event
from penstock.workloads.applications.windows import with_moments
from penstock.workloads.incoming import message_of

DOLLARS_TO_EUROS = 0.908
AUCTION_STEP = 123
Q3_STATES = "'OR', 'ID', 'CA'"
WINDOW, SLIDE = "10 seconds", "2 seconds"

_NAMES = [column.split()[0] for column in COLUMNS.split(", ")]


def _event(row: dict[str, Any]) -> dict[str, Any]:
    event = message_of(row, auction_event)
    return {name: event.get(name) for name in _NAMES}


def _q0(row: dict[str, Any]) -> dict[str, Any]:
    """Every event as it is: what reading and writing cost."""
    return {"event": json.dumps({key: value for key, value in row.items() if value is not None})}


def _q1(row: dict[str, Any]) -> dict[str, Any] | None:
    """Bids with their price in euros."""
    if row["kind"] != "bid":
        return None
    euros = round(row["price"] * DOLLARS_TO_EUROS, 3)
    return {"auction": row["auction"], "bidder": row["bidder"], "euros": euros, "ts": row["ts"]}


def _q2(row: dict[str, Any]) -> dict[str, Any] | None:
    """Bids for every 123rd auction."""
    if row["kind"] != "bid" or row["auction"] % AUCTION_STEP:
        return None
    return {"auction": row["auction"], "price": row["price"]}


def _moments(frame: Any, kind: str, *columns: str) -> Any:
    return with_moments(frame.where(f"kind = '{kind}'"), *columns)


def _q3(frame: Any) -> Any:
    """Who sells in some states and one category: people joined with the auctions they open."""
    people = frame.where(f"kind = 'person' AND state IN ({Q3_STATES})").selectExpr("person", "name", "state")
    auctions = frame.where(f"kind = 'auction' AND category = {FIRST_CATEGORY}").selectExpr("auction", "seller")
    return auctions.join(people, auctions["seller"] == people["person"]).select("name", "state", "auction")


def _winning(frame: Any) -> Any:
    """The highest bid of every auction while it was open, and when that was over."""
    auctions = _moments(frame, "auction", "auction AS number", "category", "timestamp_seconds(expires) AS over")
    auctions = auctions.withColumnRenamed("moment", "opened")
    bids = _moments(frame, "bid", "auction", "price")
    return auctions.join(bids, _within(auctions, bids)).selectExpr("moment", "over", "number", "category", "price")


def _within(auctions: Any, bids: Any) -> Any:
    """Spark keeps an auction for as long as the condition says something of when it was opened. Without the last part
    bids of later batches did not find their auction: it seems that `over` was taken for that moment."""
    same = auctions["number"] == bids["auction"]
    open_then = (bids["moment"] >= auctions["opened"]) & (bids["moment"] < auctions["over"])
    soon = bids["moment"].cast("double") < auctions["opened"].cast("double") + (OPEN_SECONDS + 1.0)
    return same & open_then & soon


def _q4(frame: Any) -> Any:
    """What auctions of a category end at, on average. A variation: per window, of the auctions that were bid for in it,
    by the highest bid of the window, where Nexmark takes an auction's last price and all auctions so far."""
    joined = _winning(frame).selectExpr(f"window(moment, '{WINDOW}') AS span", "number", "category", "price")
    highest = joined.groupBy("span", "number", "category").agg({"price": "max"})
    again = highest.selectExpr(f"window(span, '{WINDOW}') AS span", "category", "`max(price)` AS final")
    means = again.groupBy("span", "category").agg({"final": "avg"})
    return means.selectExpr("CAST(span.end AS double) AS window_end", "category", "`avg(final)` AS average")


def _q5(frame: Any) -> Any:
    """The auctions with the most bids, in sliding windows."""
    bids = _moments(frame, "bid", "auction").selectExpr(f"window(moment, '{WINDOW}', '{SLIDE}') AS span", "auction")
    counts = bids.groupBy("span", "auction").count()
    # windows of windows: the end of one is the moment its count is known
    pairs = counts.selectExpr(
        "window(window_time(span), '1 second') AS known", "span.end AS over", "struct(count, auction) AS pair"
    )
    most = pairs.groupBy("known", "over").agg({"pair": "collect_list"})
    known = most.selectExpr("CAST(over AS double) AS window_end", "`collect_list(pair)` AS pairs")
    highest = "array_max(transform(pairs, pair -> pair.count))"
    hottest = f"transform(filter(pairs, pair -> pair.count = {highest}), pair -> pair.auction)"
    return known.selectExpr("window_end", f"{highest} AS bids", f"to_json(array_sort({hottest})) AS auctions")


def _q7(frame: Any) -> Any:
    """The highest bid of every window; of equal ones that for the highest auction, where Nexmark takes all."""
    bids = _moments(frame, "bid", "struct(price, auction, bidder) AS bid")
    highest = bids.selectExpr(f"window(moment, '{WINDOW}') AS span", "bid").groupBy("span").agg({"bid": "max"})
    return highest.selectExpr("CAST(span.end AS double) AS window_end", "`max(bid)`.*")


def _q8(frame: Any) -> Any:
    """Who registered and opened an auction within the same window, once for each such auction. Nexmark sends the
    reserve price of the auction, too, which ours have not."""
    people = _moments(frame, "person", "person", "name").selectExpr(
        f"window(moment, '{WINDOW}') AS span", "person", "name"
    )
    auctions = _moments(frame, "auction", "seller").selectExpr(f"window(moment, '{WINDOW}') AS opened", "seller")
    same = (people["person"] == auctions["seller"]) & (people["span"] == auctions["opened"])
    joined = people.join(auctions, same).selectExpr("span", "person", "name")
    return joined.selectExpr("CAST(span.end AS double) AS window_end", "person", "name")


event = Logic(_event, schema=COLUMNS)
q0 = Logic(_q0, schema="event string")
q1 = Logic(_q1, schema="auction bigint, bidder bigint, euros double, ts double")
q2 = Logic(_q2, schema="auction bigint, price bigint")
q3 = Logic(_q3, Per.DATAFRAME)
q4 = Logic(_q4, Per.DATAFRAME)
q5 = Logic(_q5, Per.DATAFRAME)
q7 = Logic(_q7, Per.DATAFRAME)
q8 = Logic(_q8, Per.DATAFRAME)
