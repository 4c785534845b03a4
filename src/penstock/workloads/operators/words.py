"""The first operator of word count: a tuple becomes a line of text, or brings one, and the line becomes its words.

The text is made up from the tuple's number: the same number always gives the same line, so counts can be checked. Words
at the front of the vocabulary are more frequent, as in real text.
"""

from __future__ import annotations

from typing import Any

from penstock.dataflow.logic import Logic
from penstock.workloads.incoming import message_number, parsed_message

_FREQUENT = """
the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one
you were her all she there would their we him been has when who will more no if out so said what up its about into
than them can only other new some could time these two may then do first any my now such like our over man me even
most made after also did many before must through back years where much your way well down should because each just
those people how too little state good very make world still own see men work long get here between both life being
under never day same water
"""
VOCABULARY = tuple(_FREQUENT.split())
SHORTEST, LONGEST = 6, 12


def line(number: int) -> str:
    # a linear congruential generator (Knuth's MMIX constants), seeded by the number; its high bits are the good ones
    state = number

    def draw(below: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % below

    draw(2)
    size = len(VOCABULARY)
    # the product of two even draws leans to the front
    return " ".join(VOCABULARY[draw(size) * draw(size) // size] for _ in range(SHORTEST + draw(LONGEST - SHORTEST + 1)))


def split_line(row: dict[str, Any]) -> list[dict[str, Any]]:
    number, text = _numbered_line(row["value"])
    return [{"value": number, "word": word} for word in text.split()]


def _numbered_line(value: int | bytes) -> tuple[int, str]:
    """The load generator sends the number of a line, which is made here; a topic the line itself, in a message."""
    if isinstance(value, int):
        return value, line(value)
    message = parsed_message(value)
    return message_number(message), str(message["text"])


split_words = Logic(split_line, schema="value bigint, word string")
