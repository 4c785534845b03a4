"""Twitter sentiment of 003 (Fig 9): eleven operators in eight stages.

tweets (1) -> archive (2)
       -> language (3) -> sentiment (4) -> score (5) -> average (6)
                                        -> hashtags (7) -> count (8) -> rank (9) -> rank-all (10) -> report (11)
"""

from __future__ import annotations

import json
from typing import Any

from penstock.dataflow.logic import Logic
from penstock.workloads.applications.messages import tweet
from penstock.workloads.applications.windows import share_of
from penstock.workloads.incoming import message_of

# Sentiment of words, from -5 to +5, and the small words that identify a language. Our own lists: common words with the
# strength most readers would give them.


_BY_STRENGTH = {
    5: "outstanding superb breathtaking thrilled masterpiece",
    4: "amazing awesome fantastic wonderful brilliant win winner joy",
    3: "great love loved happy best excellent perfect delight beautiful",
    2: "good nice fun glad like enjoy calm hope kind safe",
    1: "fine okay fair useful clear fresh able agree",
    -1: "dull slow odd late weak miss doubt plain",
    -2: "bad sad lose lost boring tired hurt fear wrong poor",
    -3: "worst angry awful ugly fail failed terrible cruel",
    -4: "hate hated horrible disgusting fraud rage torture",
    -5: "catastrophe atrocious vile",
}
VALENCE = {word: strength for strength, words in _BY_STRENGTH.items() for word in words.split()}

_SMALL_WORDS = {
    "en": "the and is was this that with you for have not but are very just today of to in it",
    "de": "der die das und ist nicht mit ein auf ich wir heute sehr aber schon noch zu",
    "es": "el la que no una con para los muy hoy pero este como todo bien de en",
}
SMALL_WORDS = {language: frozenset(words.split()) for language, words in _SMALL_WORDS.items()}


def language_of(words: list[str]) -> str:
    """The language most of whose small words occur; ties go to the first."""
    return max(SMALL_WORDS, key=lambda language: sum(word in SMALL_WORDS[language] for word in words))


def score_of(words: list[str]) -> int:
    """The sum of what the words feel like."""
    return sum(VALENCE.get(word, 0) for word in words)


GLAD, SAD = 1, -1


def _language(row: dict[str, Any]) -> dict[str, Any] | None:
    """Only what is in English goes on."""
    message = message_of(row, tweet)
    words = [word for word in str(message["text"]).lower().split() if not word.startswith("#")]
    if language_of(words) != "en":
        return None
    return {"ts": float(message["ts"]), "text": str(message["text"])}


def _sentiment(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "score": score_of(row["text"].lower().split())}


def _score(row: dict[str, Any]) -> dict[str, Any]:
    """A score and whether it is glad, sad or neither."""
    score = row["score"]
    mood = "glad" if score >= GLAD else "sad" if score <= SAD else "neither"
    return {"ts": row["ts"], "mood": mood, "score": score}


def _hashtags(row: dict[str, Any]) -> list[dict[str, Any]]:
    tags = [word[1:] for word in row["text"].lower().split() if word.startswith("#")]
    return [{"ts": row["ts"], "tag": tag, "share": share_of(tag)} for tag in tags]


def _report(row: dict[str, Any]) -> dict[str, Any]:
    first = json.loads(row["first"])
    text = ", ".join(f"#{pair['value']} {pair['count']}" for pair in first)
    return {"window_end": row["window_end"], "trending": text}


language = Logic(_language, schema="ts double, text string")
sentiment = Logic(_sentiment, schema="ts double, text string, score int")
score = Logic(_score, schema="ts double, mood string, score int")
hashtags = Logic(_hashtags, schema="ts double, tag string, share int")
report = Logic(_report, schema="window_end double, trending string")
