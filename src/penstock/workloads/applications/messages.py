"""Messages by number: what the applications read, as mappings that become JSON.

Event time is in the message and does not depend on when it is made: message n happened n hundredths of a second after
the beginning of 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.base.clock import timestamp_of
from penstock.base.errors import BadInputError, nearest
from penstock.workloads.operators.words import line

if TYPE_CHECKING:
    from collections.abc import Callable


# Even draws that follow from a number alone: the same everywhere, and fast enough to make messages of.


class Draws:
    """A linear congruential generator (Knuth's MMIX constants), seeded by a number; its high bits are the good ones."""

    def __init__(self, seed: int) -> None:
        self._state = seed
        self.below(2)

    def below(self, bound: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % bound


# An online auction as a stream of events: people register, auctions open, bids come in. The shape is that of Nexmark
# (one person and three auctions among fifty events, all others bids); the generator is our own.


ROUND = 50
"""Events of which the first is a person, the next three are auctions and the rest are bids."""
AUCTIONS_OF_ROUND = 3
STATES = ("OR", "ID", "CA", "WA", "AZ", "WY")
CATEGORIES = 5
FIRST_CATEGORY = 10
RECENT_AUCTIONS, RECENT_PEOPLE = 60, 30
"""Bids are for one of the last so many auctions; sellers and bidders are among the last so many people."""
OPEN_SECONDS = 4
AUCTION_BEGINNING = 1_767_225_600.0
AUCTION_GAP_SECONDS = 0.01

COLUMNS = (
    "kind string, ts double, person bigint, name string, state string, auction bigint, seller bigint, "
    "category int, expires double, bidder bigint, price bigint"
)
"""Of all events; those of another kind have nothing there."""


def auction_event(number: int) -> dict[str, Any]:
    """Event `number`: people and auctions have the numbers 0, 1, 2, ... in the order they appear."""
    round_number, place = divmod(number, ROUND)
    draw = Draws(number)
    ts = AUCTION_BEGINNING + number * AUCTION_GAP_SECONDS
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


BEGINNING = 1_767_225_600.0
"""2026-01-01 00:00 UTC, in seconds since the epoch."""
GAP_SECONDS = 0.01


def happened(number: int) -> float:
    return BEGINNING + number * GAP_SECONDS


def sentence(number: int) -> dict[str, Any]:
    """What the word counts read."""
    return {"id": number, "ts": happened(number), "text": line(number)}


LANGUAGES = ("en", "en", "en", "de", "es")
"""Three tweets of five are in English."""
TAGS = tuple(f"tag{number}" for number in range(40))
USERS = 500
_USUAL_WORDS = {
    "en": "the and is was this that with you for have not but are very just today",
    "de": "der und ist nicht das mit ein auf ich wir heute sehr aber schon noch",
    "es": "el la que no una con para los muy hoy pero este como todo bien",
}
_MOOD_WORDS = "good great love happy win best nice fun bad awful hate sad lose worst angry boring"
_USUAL = {language: tuple(words.split()) for language, words in _USUAL_WORDS.items()}
_MOODS = tuple(_MOOD_WORDS.split())


def tweet(number: int) -> dict[str, Any]:
    """Ten to twenty words of one language, in English some with a mood, up to three hashtags; early tags are more
    frequent."""
    draw = Draws(number)
    language = LANGUAGES[draw.below(len(LANGUAGES))]
    usual = _USUAL[language]
    words = []
    for _ in range(10 + draw.below(11)):
        mood = language == "en" and draw.below(4) == 0
        words.append(_MOODS[draw.below(len(_MOODS))] if mood else usual[draw.below(len(usual))])
    tags = [TAGS[draw.below(len(TAGS)) * draw.below(len(TAGS)) // len(TAGS)] for _ in range(draw.below(4))]
    text = " ".join([*words, *(f"#{tag}" for tag in tags)])
    return {"id": number, "ts": happened(number), "user": f"user{draw.below(USERS)}", "text": text}


PAGES, CAMPAIGNS = 200, 20
AGENTS = ("firefox", "chrome", "safari", "edge", "crawler")
KINDS = ("view", "view", "view", "click", "load", "purchase")


def page_event(number: int) -> dict[str, Any]:
    """An event of an advertising platform; one in five comes from a crawler."""
    draw = Draws(number)
    return {
        "id": number,
        "ts": happened(number),
        "page": f"page{draw.below(PAGES)}",
        "kind": KINDS[draw.below(len(KINDS))],
        "agent": AGENTS[draw.below(len(AGENTS))],
        "millis": 20 + draw.below(2000),
        "cents": draw.below(500),
    }


def payload(number: int) -> dict[str, Any]:
    """A hundred bytes and a number: what the micro pipelines pass on."""
    return {"id": number, "ts": happened(number), "text": f"{number:0100d}"}


SOURCES = 16


def reading(number: int) -> dict[str, Any]:
    """A sensor's reading between 0 and 100."""
    draw = Draws(number)
    return {
        "id": number,
        "ts": happened(number),
        "source": f"s{number % SOURCES}",
        "reading": draw.below(10_000) / 100,
        "other": "x" * 40,
    }


# Readings of gateways in batches, and messages of a feed: what the priority thesis' use cases read, as JSON or as lines
# of comma-separated values.


THRESHOLD = 50.0
"""Readings above it are those of an event."""
EVENT_READINGS = 0.9
"""Part of an event batch's readings that are above the threshold; the detector asks for 0.8."""
GATEWAYS, BATCH_LENGTH, EVENT_SHARE = 8, 80, 0.5


def batch_reading(number: int, producer: int, length: int, event_share: float) -> dict[str, Any]:
    """Return reading `number` of a producer whose batches have `length` of them: use case 1 of the priority thesis.
    Whether a batch is an event depends only on its number: producers of two topics make events at the same time."""
    batch, place = divmod(number, length)
    is_event = is_event_batch(batch, event_share)
    # exactly the part asked for, the first of a batch
    high = place < round(length * EVENT_READINGS) if is_event else place % 4 == 0
    draw = Draws(number * 1009 + producer)
    value = THRESHOLD + 1 + draw.below(40) if high else draw.below(int(THRESHOLD))
    return {
        "id": number,
        "ts": happened(number),
        "source": f"s{producer}",
        "batch": batch,
        "last": place == length - 1,
        "reading": float(value),
        "other": "x" * 40,
    }


def is_event_batch(batch: int, event_share: float) -> bool:
    return Draws(batch * 7919 + 17).below(10_000) < event_share * 10_000


def reading_line(number: int, gateway: int, length: int, event_share: float) -> str:
    """Return reading `number` of a gateway as `DATE-TIME,SOURCE,READING,DEVICE;BATCH;LENGTH`."""
    row = batch_reading(number, gateway, length, event_share)
    other = f"device{number % length};{row['batch']};{length}"
    return f"{timestamp_of(row['ts'])},{row['source']},{row['reading']:g},{other}"


def gateway_line(number: int, length: int = BATCH_LENGTH, event_share: float = EVENT_SHARE) -> str:
    """Return line `number` of a stream to which eight gateways send in turn."""
    own, gateway = divmod(number, GATEWAYS)
    return reading_line(own, gateway, length, event_share)


def feed_line(number: int) -> str:
    """Return message `number` of a feed as `DATE-TIME,USER,CONTENT,LANGUAGE`."""
    return f"{timestamp_of(happened(number))},user{Draws(number).below(USERS)},{line(number)},en"


MESSAGES: dict[str, Callable[[int], dict[str, Any] | str]] = {
    "sentences": sentence,
    "tweets": tweet,
    "page-events": page_event,
    "payloads": payload,
    "readings": reading,
    "auctions": auction_event,
    "gateway-lines": gateway_line,
    "feed-lines": feed_line,
}
"""Streams of data by the name that `penstock dev produce` takes: fields of a JSON object, or lines of text."""


def messages(name: str) -> Callable[[int], dict[str, Any] | str]:
    if name not in MESSAGES:
        raise BadInputError(f"data '{name}': unknown; {nearest(name, MESSAGES)}")
    return MESSAGES[name]
