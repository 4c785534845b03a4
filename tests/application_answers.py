"""What the applications must answer, worked out from the messages by plain Python: no window, join or rank of Spark's,
and none of the applications' code."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from penstock.workloads.applications.messages import auction_event, page_event, tweet
from penstock.workloads.applications.sentiment import VALENCE
from penstock.workloads.operators.words import line

BEGINNING, TICK = 1_767_225_600, 0.01
WINDOW, SLIDE = 10, 2

Rows = list[dict[str, Any]]
Expected = Callable[[int], Rows]
"""All rows of a sink for the messages 0 to n - 1."""


def moment(number: int) -> float:
    return BEGINNING + number * TICK


def window_end(seconds: float) -> float:
    """Times are whole microseconds to Spark."""
    return float(int(seconds * 1e6) // (WINDOW * 10**6) * WINDOW + WINDOW)


def windows(n: int) -> dict[float, list[int]]:
    """Messages by the end of their window."""
    by_end: dict[float, list[int]] = defaultdict(list)
    for number in range(n):
        by_end[window_end(moment(number))].append(number)
    return by_end


def once_a_path(paths: int) -> Expected:
    """Pipelines that pass messages on."""

    def expected(n: int) -> Rows:
        return [{"id": number, "text": str(number).zfill(100)} for number in range(n)] * paths

    return expected


def values(times: int) -> Expected:
    """Of reference tasks: as many tuples leave for one that enters as document 000 says."""

    def expected(n: int) -> Rows:
        return [{"value": number} for number in range(n)] * times

    return expected


# Reference tasks: each sends on the number it got and what it adds itself, so a sink sees the last one before it.

VIETE = 2**16 * math.sin(math.pi / 2**16)
"""15 factors of Viete's product: cos(pi/4), cos(pi/8), ..., which sin(2x) = 2 sin(x) cos(x) makes a single sine."""
XML = {"elements": 4 * (1 + 8 * 3), "attributes": 4 * (1 + 8 * 3)}
"""Of 4 messages: a station with its name, and 8 readings of 3 attributes that have a time and a temperature inside."""


def with_pi(n: int) -> Rows:
    return [{"value": number, "pi": VIETE} for number in range(n)]


def in_first_batch(n: int) -> Rows:
    """Of fewer than 10,000 tuples."""
    return [{"value": number, "batch": 0} for number in range(n)]


def traffic(n: int) -> Rows:
    """Through P1 and B1 to X2, whose tuples F3 writes; and through T2 to P2."""
    return in_first_batch(n) * 2 + with_pi(n)


def finance(n: int) -> Rows:
    """Through P1 and F1 to T1, whose tuples P2 takes; and through B1 to F2."""
    return with_pi(n) * 2 + in_first_batch(n)


def grid(n: int) -> Rows:
    """Through X1, X2 and X3 to T1, whose tuples P1 takes; and through a row of ten to X5."""
    return with_pi(n) * 3 + [{"value": number, **XML} for number in range(n)]


def words(n: int) -> Rows:
    counts = Counter(word for number in range(n) for word in line(number).split(" "))
    return [{"word": word, "count": count} for word, count in counts.items()]


def first_five(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:5]


def top_words(n: int) -> Rows:
    made = []
    for end, numbers in windows(n).items():
        counts = Counter(word for number in numbers for word in line(number).split(" "))
        first = [{"count": count, "value": word} for word, count in first_five(counts)]
        made.append({"window_start": end - WINDOW, "window_end": end, "first": first})
    return made


ENGLISH = r"\b(the|and|is|was|this|that|with|you|for|have|not|but|are|very|just|today)\b"
"""All small words of the tweets in English. With ten of them one tweet in some thousands, made of the other six, was
taken for another language."""


def english(number: int) -> bool:
    return bool(re.search(ENGLISH, tweet(number)["text"]))


def feeling(number: int) -> int:
    return sum(VALENCE.get(word, 0) for word in re.findall(r"(?<!\S)[a-z]+(?!\S)", tweet(number)["text"]))


def averages(n: int) -> Rows:
    made = []
    for end, numbers in windows(n).items():
        feelings: dict[str, list[int]] = defaultdict(list)
        for score in (feeling(number) for number in numbers if english(number)):
            feelings["glad" if score > 0 else "sad" if score < 0 else "neither"].append(score)
        for mood, scores in feelings.items():
            mean = round(sum(scores) / len(scores), 9)
            made.append(
                {
                    "window_start": end - WINDOW,
                    "window_end": end,
                    "mood": mood,
                    "average": mean,
                    "tweets": len(scores),
                }
            )
    return made


def trends(n: int) -> Rows:
    made = []
    for end, numbers in windows(n).items():
        tags = Counter(tag for n in numbers if english(n) for tag in re.findall(r"#(\w+)", tweet(n)["text"]))
        trending = ", ".join(f"#{tag} {count}" for tag, count in first_five(tags))
        made.append({"window_end": end, "trending": trending})
    return made


def people_events(n: int) -> list[dict[str, Any]]:
    return [event for event in map(page_event, range(n)) if event["agent"] != "crawler"]


def campaigns(n: int) -> Rows:
    millis: dict[int, list[int]] = defaultdict(list)
    for event in people_events(n):
        campaign = int(event["page"][4:]) * 7 % 20
        if campaign % 2 == 0:
            millis[campaign].append(event["millis"])
    return [
        {"campaign": f"campaign{number}", "events": len(all_of), "millis": round(sum(all_of) / len(all_of), 9)}
        for number, all_of in millis.items()
    ]


def worth(n: int) -> Rows:
    prices = {"view": 0.1, "click": 1.0, "load": 0.05, "purchase": 5.0}
    return [
        {"id": e["id"], "kind": e["kind"], "price": round(e["cents"] * prices[e["kind"]] / 100, 9)}
        for e in people_events(n)
    ]


def speeds(n: int) -> Rows:
    return [
        {"id": e["id"], "page": e["page"][4:], "seconds": round(e["millis"] / 1000, 9), "slow": e["millis"] > 1000}
        for e in map(page_event, range(n))
    ]


# Nexmark: people 0, 50, 100, ..., auctions behind them, all else bids.


def events(n: int, kind: str) -> list[dict[str, Any]]:
    return [event for event in map(auction_event, range(n)) if event["kind"] == kind]


def q0(n: int) -> Rows:
    return [auction_event(number) for number in range(n)]


def q1(n: int) -> Rows:
    return [
        {"auction": b["auction"], "bidder": b["bidder"], "euros": round(b["price"] * 0.908, 3), "ts": b["ts"]}
        for b in events(n, "bid")
    ]


def q2(n: int) -> Rows:
    return [{"auction": b["auction"], "price": b["price"]} for b in events(n, "bid") if b["auction"] % 123 == 0]


def q3(n: int) -> Rows:
    local = {p["person"]: p for p in events(n, "person") if p["state"] in {"OR", "ID", "CA"}}
    return [
        {"name": local[a["seller"]]["name"], "state": local[a["seller"]]["state"], "auction": a["auction"]}
        for a in events(n, "auction")
        if a["category"] == 10 and a["seller"] in local
    ]


def micros(seconds: float) -> int:
    return int(seconds * 1e6)


def q4(n: int) -> Rows:
    auctions = {a["auction"]: a for a in events(n, "auction")}
    highest: dict[tuple[float, int, int], int] = {}
    for bid in events(n, "bid"):
        auction = auctions[bid["auction"]]
        if micros(auction["ts"]) <= micros(bid["ts"]) < micros(auction["expires"]):
            key = window_end(bid["ts"]), auction["category"], bid["auction"]
            highest[key] = max(highest.get(key, 0), bid["price"])
    finals: dict[tuple[float, int], list[int]] = defaultdict(list)
    for (end, category, _), price in highest.items():
        finals[end, category].append(price)
    return [
        {"window_end": end, "category": category, "average": round(sum(prices) / len(prices), 9)}
        for (end, category), prices in finals.items()
    ]


def q5(n: int) -> Rows:
    counts: dict[float, Counter[int]] = defaultdict(Counter)
    for bid in events(n, "bid"):
        first_end = micros(bid["ts"]) // (SLIDE * 10**6) * SLIDE + SLIDE
        for end in range(first_end, first_end + WINDOW, SLIDE):
            counts[float(end)][bid["auction"]] += 1
    made = []
    for over, by_auction in counts.items():
        most = max(by_auction.values())
        hottest = sorted(auction for auction, count in by_auction.items() if count == most)
        made.append({"window_end": over, "bids": most, "auctions": hottest})
    return made


def q7(n: int) -> Rows:
    best: dict[float, tuple[int, int, int]] = {}
    for bid in events(n, "bid"):
        end = window_end(bid["ts"])
        best[end] = max(best.get(end, (0, 0, 0)), (bid["price"], bid["auction"], bid["bidder"]))
    return [{"window_end": end, "price": p, "auction": a, "bidder": b} for end, (p, a, b) in best.items()]


def q8(n: int) -> Rows:
    people = {p["person"]: p for p in events(n, "person")}
    made = []
    for auction in events(n, "auction"):
        seller = people[auction["seller"]]
        end = window_end(auction["ts"])
        if window_end(seller["ts"]) == end:
            made.append({"window_end": end, "person": seller["person"], "name": seller["name"]})
    return made


def frozen(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Rows to compare, whatever order they and their fields come in. Sums of fractions differ in their last digits by
    the order they were added in."""
    made: Counter[str] = Counter()
    for row in rows:
        fields = {k: round(v, 9) if isinstance(v, float) else v for k, v in row.items() if v is not None}
        made[repr(sorted(fields.items()))] += 1
    return made
