"""Messages by number: what the applications read, as mappings that become JSON.

Event time is in the message and does not depend on when it is made: message n happened n hundredths of a second after
the beginning of 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import BadInputError, nearest
from penstock.workloads.applications.auction import auction_event
from penstock.workloads.applications.draws import Draws
from penstock.workloads.operators.words import line

if TYPE_CHECKING:
    from collections.abc import Callable

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


MESSAGES: dict[str, Callable[[int], dict[str, Any]]] = {
    "sentences": sentence,
    "tweets": tweet,
    "page-events": page_event,
    "payloads": payload,
    "readings": reading,
    "auctions": auction_event,
}
"""The streams of data there are, by the name `penstock produce` knows them by."""


def messages(name: str) -> Callable[[int], dict[str, Any]]:
    if name not in MESSAGES:
        raise BadInputError(f"data '{name}': unknown; {nearest(name, MESSAGES)}")
    return MESSAGES[name]
