"""Word counts: that of 003, which parses JSON first, and TOP_N of 004, which ranks words per window."""

from __future__ import annotations

from typing import Any

from penstock.dataflow.logic import Logic
from penstock.workloads.applications.messages import sentence
from penstock.workloads.applications.windows import share_of
from penstock.workloads.incoming import message_of


def _parse(row: dict[str, Any]) -> dict[str, Any]:
    message = message_of(row, sentence)
    return {"ts": float(message["ts"]), "text": str(message["text"])}


def _split(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"ts": row["ts"], "word": word} for word in row["text"].split()]


def _split_in_shares(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**word, "share": share_of(word["word"])} for word in _split(row)]


parse = Logic(_parse, schema="ts double, text string")
split = Logic(_split, schema="ts double, word string")
split_in_shares = Logic(_split_in_shares, schema="ts double, word string, share int")
