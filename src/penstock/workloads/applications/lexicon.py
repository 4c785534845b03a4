"""How words feel, from -5 to +5, and which small words a language is known by. Of our own making: common words with the
strength most readers would give them."""

from __future__ import annotations

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
